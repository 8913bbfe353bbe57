// Attention's description: its text, operands, counts and exact result.
#pragma once

#include "kernels/op.hpp"

namespace rocm_sd {

struct AttentionSpec {
  // Of image, head and row of q, k, v or y, in elements; all 0: dense [batch,rows,heads,head_dim].
  struct HeadStrides {
    int64_t batch = 0, head = 0, row = 0;
  };
  DType dtype = DType::kF32;
  int64_t batch = 0, heads = 1, queries = 0, keys = 0, head_dim = 1;
  bool masked = false, causal = false;
  // What the text does not say.
  HeadStrides q = {}, k = {}, v = {}, y = {};  // y: dense, heads in rows or as matrices
  float scale = 0;                             // 0: 1 / sqrt(head_dim)
  int64_t mask_strides[3] = {0, 0, 0};         // of image, head and query; 0 broadcasts

  static constexpr const char* kOp = "attention";
  static constexpr const char* kExample = "bf16 [2,4,64x77,40] masked";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).word(" [").extent(p.batch).word(",").extent(p.heads, 1).word(",");
    t.extent(p.queries).word("x").extent(p.keys).word(",").extent(p.head_dim, 1).word("]");
    t.flag(" masked", p.masked).flag(" causal", p.causal);
    t.set(p.mask_strides[2], p.masked ? p.keys : 0);  // one mask for all heads and images
  }
  double flops() const {  // 4 per query, key and channel; half of it where causal
    return 4.0 * static_cast<double>(batch * heads * queries) * static_cast<double>(keys * head_dim) *
           (causal ? 0.5 : 1.0);
  }
  double bytes() const {
    return 2.0 * static_cast<double>(batch * heads * head_dim * (queries + keys)) *
           static_cast<double>(dtype_size(dtype));
  }
  double reads_per_output() const { return static_cast<double>(keys * head_dim); }
  OutputExtent extent() const {
    return {static_cast<double>(batch * heads), static_cast<double>(queries), static_cast<double>(head_dim)};
  }
  void check() const;
  std::vector<Operand> operands() const;
  std::vector<Result> run(Exec& ex, const Operands& in, const Weight& weight) const;
  ExactValue exact(const OperandValues& in, int64_t i) const;
};

}  // namespace rocm_sd
