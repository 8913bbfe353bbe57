// unit_tokens, row_argmax and token_places: which tokens are merged.
#include "composable_kernels/fused/token_merge.hpp"
#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"
#include "kernels/token_merge/token_merge.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 24;  // numbers that a float holds

struct UnitTokensProblem {
  const void* x = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;         // of x
  std::optional<DType> result = {};  // of y, where it is another one
  int64_t images = 0, height = 0, width = 1, channels = 1;

  static constexpr const char* kOp = "unit_tokens";
  static constexpr const char* kExample = "f32 [2,9x7,83]";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).optional_type("->", p.result, kActivationTypes).word(" [").extent(p.images).word(",");
    t.extent(p.height).word("x").extent(p.width, 1).word(",").extent(p.channels, 1).word("]");
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    const Shape shape{p.images, p.height * p.width, p.channels};
    v.input("x", p.x, shape, p.dtype);
    v.output("y", p.y, shape, p.types()[1]);
  }
  double flops() const { return 3.0 * static_cast<double>(images * height * width * channels); }
  exact::Sum exact(const auto& in, int64_t i) const {
    const TokenGrid grid{height, width};
    const int64_t place = i / channels % grid.tokens(), image = i / channels / grid.tokens();
    // The token that goes there.
    int64_t token = 0;
    while (grid.sorted(token) != place) ++token;
    const int64_t first = (image * grid.tokens() + token) * channels;
    double squares = 0;
    for (int64_t c = 0; c < channels; ++c) squares += in(0, first + c) * in(0, first + c);
    exact::Sum out;
    if (squares > 0) out.add(in(0, first + i % channels) / std::sqrt(squares));
    return out;
  }

  using Kernels = Storages<FloatStorage, FloatStorage>;
  std::array<DType, 2> types() const { return {dtype, result.value_or(dtype)}; }
  Refusal refuse() const {
    if (height * width >= kMaxTokens) return "takes fewer than 2^24 tokens";
    return std::nullopt;
  }
  static constexpr int kWaves = kTokenMergeWaves;
  int64_t items() const { return images * height * width; }
  template <class X, class Y>
  UnitTokensParams<X, Y> params(uint32_t workgroups) const {
    return {static_cast<const X*>(x), static_cast<Y*>(y), images, channels, {height, width}, workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    unit_tokens_body(params, block);
  }
};

struct RowArgmaxProblem {
  const void* x = nullptr;
  float* y = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 1;

  static constexpr const char* kOp = "row_argmax";
  static constexpr const char* kExample = "f32 [37,131]";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).word(" [").extent(p.rows).word(",").extent(p.cols, 1).word("]");
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("x", p.x, {p.rows, p.cols}, p.dtype);
    v.output("y", p.y, {p.rows, 2}, DType::kF32);
  }
  double flops() const { return static_cast<double>(rows * cols); }
  exact::Sum exact(const auto& in, int64_t i) const {
    const int64_t first = i / 2 * cols;
    double most = -std::numeric_limits<double>::infinity(), at = 0;
    for (int64_t c = 0; c < cols; ++c)
      if (const double v = in(0, first + c); v > most) {
        most = v;
        at = static_cast<double>(c);
      }
    const double value = i % 2 == 0 ? most : at;
    return {value, std::fabs(value)};
  }

  Refusal refuse() const {
    if (cols > kMaxTokens) return "takes at most 2^24 columns";
    return std::nullopt;
  }
  static constexpr int kWaves = kTokenMergeWaves;
  int64_t items() const { return rows; }
  template <class T>
  RowArgmaxParams<T> params(uint32_t workgroups) const {
    return {static_cast<const T*>(x), y, rows, cols, workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    row_argmax_body(params, block);
  }
};

struct TokenPlacesProblem {
  const float* matches = nullptr;
  float* y = nullptr;
  int64_t images = 0, height = 0, width = 1, merged = 0;

  TokenGrid grid() const { return {height, width}; }
  static constexpr const char* kOp = "token_places";
  static constexpr const char* kExample = "[2,9x7] merge 25";
  static void text(auto& p, auto& t) {
    t.word("[").extent(p.images).word(",").extent(p.height, 2).word("x").extent(p.width, 2);
    t.word("] merge ").extent(p.merged);
    t.check(p.merged <= p.grid().sources(), "no more than the sources");
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    const TokenGrid grid = p.grid();
    v.input("matches", p.matches, {p.images, grid.sources(), 2}, DType::kF32, 0,
            static_cast<float>(grid.destinations()));
    v.output("places", p.y, {p.images, grid.tokens()}, DType::kF32);
  }
  double flops() const {
    return 2.0 * static_cast<double>(images * grid().sources()) * static_cast<double>(grid().sources());
  }
  exact::Sum exact(const auto& in, int64_t i) const {
    const int64_t token = i % grid().tokens(), before = grid().destinations_before(token);
    double place = static_cast<double>(before);
    if (!grid().is_destination(token)) {
      const int64_t first = i / grid().tokens() * grid().sources(), own = token - before;
      int64_t ahead = 0;
      for (int64_t s = 0; s < grid().sources(); ++s) {
        const double other = in(0, (first + s) * 2), similarity = in(0, (first + own) * 2);
        if (other > similarity || (other == similarity && s < own)) ++ahead;
      }
      place = ahead < merged ? std::trunc(in(0, (first + own) * 2 + 1))
                             : static_cast<double>(grid().destinations() + ahead - merged);
    }
    return {place, place};
  }

  using Kernels = Storages<>;
  std::array<DType, 0> types() const { return {}; }
  Refusal refuse() const {
    if (grid().tokens() >= kMaxTokens) return "takes fewer than 2^24 tokens";
    return std::nullopt;
  }
  static constexpr int kWaves = kTokenMergeWaves;
  int64_t items() const { return images * grid().tokens(); }
  template <class... T>
  TokenPlacesParams params(uint32_t workgroups) const {
    return {matches, y, images, merged, grid(), workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    token_places_body(params, block);
  }
};

}  // namespace

AnyOp unit_tokens_op() { return MemoryBound<UnitTokensProblem>::any(); }
AnyOp row_argmax_op() { return MemoryBound<RowArgmaxProblem>::any(); }
AnyOp token_places_op() { return MemoryBound<TokenPlacesProblem>::any(); }

Tensor unit_tokens(Exec& ex, const Tensor& x, const TokenGrid& grid, DType dtype) {
  require_activation_type(x, "unit_tokens", "x");
  require_contiguous(x, "unit_tokens", "x");
  require(x.rank() == 3 && x.dim(1) == grid.tokens() && x.dim(2) > 0, "unit_tokens: expected x [B,",
          grid.tokens(), ",C], got ", x.shape());
  UnitTokensProblem problem{.dtype = x.dtype(),
                            .images = x.dim(0),
                            .height = grid.height,
                            .width = grid.width,
                            .channels = x.dim(2)};
  if (dtype != x.dtype()) problem.result = dtype;
  return run_op(ex, problem, {x});
}

Tensor row_argmax(Exec& ex, const Tensor& x) {
  require_activation_type(x, "row_argmax", "x");
  require_contiguous(x, "row_argmax", "x");
  require(x.rank() == 2 && x.dim(1) > 0, "row_argmax: expected [rows,cols] with columns, got ", x.shape());
  return run_op(ex, RowArgmaxProblem{.dtype = x.dtype(), .rows = x.dim(0), .cols = x.dim(1)}, {x});
}

Tensor token_places(Exec& ex, const Tensor& matches, const TokenGrid& grid, int64_t merged) {
  require_contiguous(matches, "token_places", "matches");
  require(matches.rank() == 3 && matches.dtype() == DType::kF32 && matches.dim(1) == grid.sources() &&
              matches.dim(2) == 2,
          "token_places: expected matches [B,", grid.sources(), ",2] f32, got ", matches.shape(), " ",
          matches.dtype());
  require(merged >= 0 && merged <= grid.sources(), "token_places: expected 0 to ", grid.sources(),
          " merged sources, got ", merged);
  const TokenPlacesProblem problem{
      .images = matches.dim(0), .height = grid.height, .width = grid.width, .merged = merged};
  return run_op(ex, problem, {matches});
}

}  // namespace rocm_sd
