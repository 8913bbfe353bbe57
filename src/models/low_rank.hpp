// Run-time LoRA: low-rank terms beside a layer's weight, y = W x + up (s * (down x)), where s is a strength
// for each row of the batch. The weight itself stays as it is. Where all rows have the same strengths and
// many pixels or tokens use a weight, it costs less to make (W + (s * up) down) in the memory of the run,
// just before its product: the price then does not grow with the image.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/conv/conv2d.hpp"
#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

struct LowRank;

// How strongly each adapter acts on each row of a model's batch, in device memory: new strengths need neither
// a new plan nor a new capture. Not thread-safe.
class RowStrengths {
 public:
  // Until the first set() every strength is 0.
  explicit RowStrengths(Device& device) : device_(device), scratch_(device) {}

  // rows: of the batch, each with a strength for every adapter. Throws InternalError for rows that differ
  // under alike().
  void set(std::vector<std::vector<float>> rows);
  const std::vector<std::vector<float>>& rows() const { return rows_; }

  // Whether all rows have the same strengths, now and in every set() to come: [false]. What was planned or
  // captured must be planned anew after a change.
  void set_alike(bool alike) { alike_ = alike; }
  bool alike() const { return alike_; }

  // [rows,columns.size()*step] f32: for each row the strength of the adapter that an entry of columns names,
  // once for each of its `step` states. Persistent; made when a forward is planned, rewritten by set().
  const Tensor& table(int64_t rows, int64_t step, const std::vector<int>& columns);
  // The same for every token of a row, less 1, as add_scaled() takes it: [rows*tokens*columns.size()].
  const Tensor& token_table(int64_t rows, int64_t tokens, const std::vector<int>& columns);
  // Under alike(): up [out,R] of the terms, each column times the strength of its adapter. Persistent; made
  // when a forward is planned, rewritten by set(). Lives as long as the terms.
  const Tensor& scaled_up(const LowRank& terms);
  uint64_t bytes() const;

 private:
  struct Scaled {
    std::weak_ptr<const LowRank> terms;
    Tensor up, factors;  // factors [out*columns] f32, less 1, as add_scaled() takes them
  };
  void upload_factors(const LowRank& terms, const Tensor& factors) const;
  void forget_gone();
  float strength(size_t row, int adapter) const;

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
  bool alike_ = false;
  std::map<const LowRank*, Scaled> scaled_;
  Arena scratch_;
  std::optional<Program> scale_all_;
};

// The terms of one layer: all adapters' ranks side by side.
struct LowRank : std::enable_shared_from_this<LowRank> {
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
// What conv2d takes in their place, with the same arguments; none where the terms cost less, and where rows
// have strengths of their own. As long as the terms live.
std::optional<FilterChange> filter_change(Exec& ex, const Tensor& x, const ConvWeight& w,
                                          const LowRank& terms, const ConvArgs& args);

}  // namespace rocm_sd
