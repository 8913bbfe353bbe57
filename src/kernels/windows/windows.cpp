#include "kernels/windows/windows.hpp"

#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

// The pixel that goes to a place.
int64_t pixel_at(const WindowGrid& grid, int64_t place) {
  int64_t pixel = 0;
  while (grid.place(pixel) != place) ++pixel;
  return pixel;
}

void read_grid(auto& p, auto& t) {
  t.type(p.dtype).word(" [").extent(p.grid.height, 1).word("x").extent(p.grid.width, 1).word(",");
  t.extent(p.channels, 1).word("] side ").extent(p.grid.side, 1).word(" shift ").extent(p.grid.shift);
  t.check(p.grid.height % p.grid.side == 0 && p.grid.width % p.grid.side == 0, "sides of whole windows");
  t.check(p.grid.shift < p.grid.side, "a shift below the side");
}

struct WindowPartitionProblem {
  const void* x = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;
  int64_t channels = 1;
  WindowGrid grid = {};

  static constexpr const char* kOp = "window_partition";
  static constexpr const char* kExample = "f32 [9x6,37] side 3 shift 1";
  static void text(auto& p, auto& t) { read_grid(p, t); }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("x", p.x, {p.grid.pixels(), p.channels}, p.dtype);
    v.output("y", p.y, {p.grid.pixels(), p.channels}, p.dtype);
  }
  double flops() const { return 0; }
  double exact(const auto& in, int64_t i) const {
    return in(0, pixel_at(grid, i / channels) * channels + i % channels);
  }

  static constexpr int kWaves = kWindowWaves;
  int64_t items() const { return grid.pixels(); }
  template <class T>
  WindowPartitionParams<T> params(uint32_t workgroups) const {
    return {static_cast<const T*>(x), static_cast<T*>(y), channels, grid, workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    window_partition_body(params, block);
  }
};

struct WindowReverseProblem {
  const void* x = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;
  int64_t channels = 1;
  WindowGrid grid = {};

  static constexpr const char* kOp = "window_reverse";
  static constexpr const char* kExample = "f32 [9x6,37] side 3 shift 1";
  static void text(auto& p, auto& t) { read_grid(p, t); }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("x", p.x, {p.grid.pixels(), p.channels}, p.dtype);
    v.input("residual", p.residual, {p.grid.pixels(), p.channels}, p.dtype);
    v.output("y", p.y, {p.grid.pixels(), p.channels}, p.dtype);
  }
  double flops() const { return static_cast<double>(grid.pixels() * channels); }
  exact::Sum exact(const auto& in, int64_t i) const {
    exact::Sum sum;
    sum.add(in(1, i));
    sum.add(in(0, grid.place(i / channels) * channels + i % channels));
    return sum;
  }

  static constexpr int kWaves = kWindowWaves;
  int64_t items() const { return grid.pixels(); }
  template <class T>
  WindowReverseParams<T> params(uint32_t workgroups) const {
    return {static_cast<const T*>(x),
            static_cast<const T*>(residual),
            static_cast<T*>(y),
            channels,
            grid,
            workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    window_reverse_body(params, block);
  }
};

struct PixelShuffleProblem {
  const void* x = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;
  int64_t height = 0, width = 1, side = 1, channels = 1;

  static constexpr const char* kOp = "pixel_shuffle";
  static constexpr const char* kExample = "f32 [5x7,37] by 2";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).word(" [").extent(p.height).word("x").extent(p.width, 1).word(",");
    t.extent(p.channels, 1).word("] by ").extent(p.side, 1);
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("x", p.x, {p.height, p.width, p.channels * p.side * p.side}, p.dtype);
    v.output("y", p.y, {p.height * p.side, p.width * p.side, p.channels}, p.dtype);
  }
  double flops() const { return 0; }
  double exact(const auto& in, int64_t i) const {
    const int64_t u = i / channels % (width * side), v = i / channels / (width * side);
    const int64_t from = (i % channels * side + v % side) * side + u % side;
    return in(0, (v / side * width + u / side) * channels * side * side + from);
  }

  static constexpr int kWaves = kWindowWaves;
  int64_t items() const { return height * width * side * side; }
  template <class T>
  PixelShuffleParams<T> params(uint32_t workgroups) const {
    return {static_cast<const T*>(x), static_cast<T*>(y), height, width, side, channels, workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    pixel_shuffle_body(params, block);
  }
};

void require_map(const Tensor& x, const WindowGrid& grid, const char* op) {
  require(grid.side > 0 && grid.shift >= 0 && grid.shift < grid.side && grid.height % grid.side == 0 &&
              grid.width % grid.side == 0,
          op, ": cannot cut ", grid.height, " x ", grid.width, " into windows of ", grid.side, " shifted by ",
          grid.shift);
  require_activation_type(x, op, "the map");
  require_contiguous(x, op, "the map");
  require(x.rank() == 4 && x.dim(0) == 1 && x.dim(1) == grid.height && x.dim(2) == grid.width && x.dim(3) > 0,
          op, ": expected a map [1,", grid.height, ",", grid.width, ",C], got ", x.shape());
}

}  // namespace

AnyOp window_partition_op() { return MemoryBound<WindowPartitionProblem>::any(); }
AnyOp window_reverse_op() { return MemoryBound<WindowReverseProblem>::any(); }
AnyOp pixel_shuffle_op() { return MemoryBound<PixelShuffleProblem>::any(); }

Tensor window_partition(Exec& ex, const Tensor& x, const WindowGrid& grid) {
  require_map(x, grid, "window_partition");
  const int64_t channels = x.dim(3);
  const WindowPartitionProblem problem{.dtype = x.dtype(), .channels = channels, .grid = grid};
  return run_op(ex, problem, {x.reshape({grid.pixels(), channels})})
      .reshape({grid.windows(), grid.side * grid.side, channels});
}

Tensor window_reverse(Exec& ex, const Tensor& x, const Tensor& residual, const WindowGrid& grid) {
  require_map(residual, grid, "window_reverse");
  const int64_t channels = residual.dim(3);
  require_contiguous(x, "window_reverse", "x");
  require(
      x.shape() == Shape{grid.windows(), grid.side * grid.side, channels} && x.dtype() == residual.dtype(),
      "window_reverse: expected x [", grid.windows(), ",", grid.side * grid.side, ",", channels, "] ",
      residual.dtype(), ", got ", x.shape(), " ", x.dtype());
  const WindowReverseProblem problem{.dtype = x.dtype(), .channels = channels, .grid = grid};
  const Shape rows{grid.pixels(), channels};
  return run_op(ex, problem, {x.reshape(rows), residual.reshape(rows)}).reshape(residual.shape());
}

Tensor pixel_shuffle(Exec& ex, const Tensor& x, int64_t side) {
  require_activation_type(x, "pixel_shuffle", "x");
  require_contiguous(x, "pixel_shuffle", "x");
  require(x.rank() == 4 && x.dim(0) == 1 && side > 0 && x.dim(3) > 0 && x.dim(3) % (side * side) == 0,
          "pixel_shuffle: expected x [1,h,w,C*", side * side, "], got ", x.shape());
  const int64_t height = x.dim(1), width = x.dim(2), channels = x.dim(3) / (side * side);
  const PixelShuffleProblem problem{
      .dtype = x.dtype(), .height = height, .width = width, .side = side, .channels = channels};
  return run_op(ex, problem, {x.reshape({height, width, x.dim(3)})})
      .reshape({1, height * side, width * side, channels});
}

}  // namespace rocm_sd
