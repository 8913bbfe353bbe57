// attention: softmax(scale q k^T + mask) v for all heads, online over tiles of k and v, so that the scores
// never exist.
#pragma once

#include <functional>

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

// The same over keys and values that come in two parts, which need not lie together: each part's sums are
// written in float and merged. between() is called when the first part's launches have been made and before
// the second's: what brings the second part may be under way until then.
struct KeysValues {
  Tensor k, v;  // [B,Nk,heads*D]
};
Tensor attention_over_parts(Exec& ex, const Tensor& q, const KeysValues& first, const KeysValues& second,
                            const AttentionArgs& args, const std::function<void()>& between);
// Whether it takes parts like this one on the Exec's device: flash attention of a GPU, in 16 bits, without a
// mask, not causal.
bool takes_attention_over_parts(const Exec& ex, const Tensor& q, const KeysValues& part,
                                const AttentionArgs& args);

}  // namespace rocm_sd
