// Run-time LoRA: low-rank terms beside a layer's weight, y = W x + up (s * (down x)), where s is a strength
// for each row of the batch. The weight itself stays as it is.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/conv/conv2d.hpp"
#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// How strongly each adapter acts on each row of a model's batch, in device memory: new strengths need neither
// a new plan nor a new capture. Not thread-safe.
class RowStrengths {
 public:
  // Until the first set() every strength is 0.
  explicit RowStrengths(Device& device) : device_(device) {}

  // rows: of the batch, each with a strength for every adapter.
  void set(std::vector<std::vector<float>> rows);
  const std::vector<std::vector<float>>& rows() const { return rows_; }

  // [rows*tokens*columns.size()] f32: for every token of a row, strength - 1 of the adapter that each entry
  // of columns names. Persistent; made when a forward is planned, rewritten by set().
  const Tensor& table(int64_t rows, int64_t tokens, const std::vector<int>& columns);
  uint64_t bytes() const;

 private:
  using Key = std::pair<std::pair<int64_t, int64_t>, std::vector<int>>;
  void fill(const Key& key, const Tensor& table) const;

  Device& device_;
  std::vector<std::vector<float>> rows_;
  std::map<Key, Tensor> tables_;
};

// The terms of one layer: all adapters' ranks side by side.
struct LowRank {
  Weight down;               // [R,in] or, of a convolution, [R,in,kh,kw]
  Weight up;                 // [out,R]; alpha / rank and block weights are in it
  std::vector<int> columns;  // which adapter each `step` of the R columns belongs to
  int64_t step = 1;
  std::shared_ptr<RowStrengths> strengths;
  // [out,in+R], the layer's weight and `up` side by side, for a GEGLU layer of a GPU; or empty. Its product
  // with the concat of x and the states saves two maps as wide as the layer.
  Weight extended;

  int64_t rank() const { return up.dim(1); }
  uint64_t bytes() const;
};

// The ops of src/kernels with a layer's terms beside them; terms may be null. x as the weight takes it;
// of_down: what `down` takes of x, where the weight takes split bf16.
Tensor linear_with_terms(Exec& ex, const Tensor& x, const LinearWeight& w, const LowRank* terms,
                         const Epilogue& epilogue = {}, const Tensor* of_down = nullptr);
Tensor linear_geglu_with_terms(Exec& ex, const Tensor& x, const LinearWeight& w, const LowRank* terms,
                               const Tensor* of_down = nullptr);
// up (s * down x) + the epilogue's residual: what a convolution with the same arguments takes as its
// residual.
Tensor conv2d_terms(Exec& ex, const Tensor& x, const LowRank& terms, const ConvArgs& args);

}  // namespace rocm_sd
