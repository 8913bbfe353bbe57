#include "kernels/row_range/row_range.hpp"

#include "composable_kernels/fused/row_range.hpp"
#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

struct RowRangeProblem {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t rows = 0, cols = 1;
  float factor = 1;

  static constexpr const char* kOp = "row_range";
  static constexpr const char* kExample = "[3,67] by 0.5";
  static void text(auto& p, auto& t) {
    t.word("[").extent(p.rows).word(",").extent(p.cols, 1).word("] by ").number(p.factor);
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("x", p.x, {p.rows, p.cols}, DType::kF32);
    v.output("y", p.y, {p.rows, p.cols}, DType::kF32);
  }
  double flops() const { return 4 * static_cast<double>(rows * cols); }
  exact::Sum exact(const auto& in, int64_t element) const {
    const int64_t first = element / cols * cols;
    double least = in(0, first), most = least;
    for (int64_t i = first; i < first + cols; ++i) {
      least = std::min(least, in(0, i));
      most = std::max(most, in(0, i));
    }
    if (most == least) return {};
    const double scale = double{factor} / (most - least);
    // What rounding of the difference and of the span can move: by their sizes, not by the result's.
    return {(in(0, element) - least) * scale, std::fabs(scale) * (std::fabs(least) + std::fabs(most))};
  }

  using Kernels = Storages<>;
  std::array<DType, 0> types() const { return {}; }
  static constexpr int kWaves = kRowRangeWaves;
  int64_t items() const { return rows; }
  template <class... T>
  RowRangeParams params(uint32_t workgroups) const {
    return {x, y, rows, cols, factor, workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    row_range_body(params, block);
  }
};

}  // namespace

AnyOp row_range_op() { return MemoryBound<RowRangeProblem>::any(); }

Tensor row_range(Exec& ex, const Tensor& x, float factor) {
  require(x.rank() == 2 && x.dtype() == DType::kF32, "row_range: expected [rows,cols] f32, got ", x.shape(),
          " ", x.dtype());
  require_contiguous(x, "row_range", "x");
  const RowRangeProblem problem{.rows = x.dim(0), .cols = x.dim(1), .factor = factor};
  return run_op(ex, problem, {x});
}

}  // namespace rocm_sd
