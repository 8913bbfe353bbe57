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

  // [rows,columns.size()*step] f32: for each row the strength of the adapter that an entry of columns names,
  // once for each of its `step` states. Persistent; made when a forward is planned, rewritten by set().
  const Tensor& table(int64_t rows, int64_t step, const std::vector<int>& columns);
  // The same for every token of a row, less 1, as add_scaled() takes it: [rows*tokens*columns.size()].
  const Tensor& token_table(int64_t rows, int64_t tokens, const std::vector<int>& columns);
  uint64_t bytes() const;

 private:
  struct Key {
    int64_t rows, tokens, step;  // tokens: 0 of table()
    std::vector<int> columns;
    auto operator<=>(const Key&) const = default;
  };
  const Tensor& made(const Key& key);
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
