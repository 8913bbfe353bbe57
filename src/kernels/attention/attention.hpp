// attention: softmax(scale q k^T + mask) v for all heads, online over tiles of k and v, so that the scores
// never exist.
#pragma once

#include "runtime/exec.hpp"

namespace rocm_sd {

struct AttentionArgs {
  int heads = 1;
  float scale = 0;               // 0 means 1 / sqrt(head_dim)
  bool causal = false;           // token i sees tokens 0..i (text encoders)
  const Tensor* mask = nullptr;  // additive, f32 [1|B,1|heads,1|Nq,Nk]; -infinity hides a key
  // k and v were written before the last op of the Exec: kernels may read them while that is still at work.
  bool pdl_keys_ready = false;
};

// q [B,Nq,heads*D], k and v [B,Nk,heads*D], f32, bf16 or f16, elements of a row contiguous, rows and images
// strided at will (so the thirds of a packed QKV product do) -> [B,Nq,heads*D] in q's dtype, contiguous.
// Scores, softmax and sums in float. A row whose keys are all hidden gives zeros. Throws ShapeError if the
// shapes do not fit. Method: Dao et al., "FlashAttention", 2022, algorithm 1; Milakov and Gimelshein, "Online
// normalizer", 2018.
Tensor attention(Exec& ex, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionArgs& args);

}  // namespace rocm_sd
