// Embeddings: of tokens and positions, and of timesteps.
#pragma once

#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// ids [B,T] i32, tokens.table [V,C], positions.table [P,C] with P >= T -> tokens[id] + positions[t], [B,T,C]
// of dtype (f32, bf16 or f16, as the tables). Ids outside 0..V-1 read row 0 on the device; callers check them
// on the host.
Tensor embed_tokens(Exec& ex, const Tensor& ids, const EmbeddingWeight& tokens,
                    const EmbeddingWeight& positions, DType dtype);

struct TimestepEmbeddingArgs {
  bool flip_sin_to_cos = true;
  float downscale_freq_shift = 0;
  float max_period = 10000;
};
// Sinusoidal embedding (Ho et al., "Denoising Diffusion", 2020): t [B] f32 -> [B,dim] of dtype; frequencies
// and angles in float as Diffusers computes them; dim odd pads a zero. flip_sin_to_cos puts the cosines
// first.
Tensor timestep_embedding(Exec& ex, const Tensor& t, int64_t dim, DType dtype,
                          const TimestepEmbeddingArgs& args = {});

}  // namespace rocm_sd
