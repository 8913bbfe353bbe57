// merge_tokens and unmerge_tokens: rows by their places, and back.
#include "composable_kernels/fused/token_merge.hpp"
#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"
#include "kernels/token_merge/token_merge.hpp"

namespace rocm_sd {
namespace {

struct MergeTokensProblem {
  const void* x = nullptr;
  const float* places = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;
  int64_t images = 0, tokens = 0, groups = 0, channels = 1;

  static constexpr const char* kOp = "merge_tokens";
  static constexpr const char* kExample = "f32 [2,63->41,83]";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).word(" [").extent(p.images).word(",").extent(p.tokens).word("->").extent(p.groups, 1);
    t.word(",").extent(p.channels, 1).word("]");
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("x", p.x, {p.images, p.tokens, p.channels}, p.dtype);
    v.input("places", p.places, {p.images, p.tokens}, DType::kF32, 0, static_cast<float>(p.groups));
    v.output("y", p.y, {p.images, p.groups, p.channels}, p.dtype);
  }
  double flops() const { return static_cast<double>(images * tokens * channels); }
  exact::Sum exact(const auto& in, int64_t i) const {
    const int64_t channel = i % channels, group = i / channels % groups, image = i / channels / groups;
    exact::Sum sum;
    double count = 0;
    for (int64_t t = image * tokens; t < (image + 1) * tokens; ++t)
      if (static_cast<int64_t>(in(1, t)) == group) {
        sum.add(in(0, t * channels + channel));
        ++count;
      }
    if (count == 0) return {};
    return {sum.value / count, sum.magnitude / count};
  }

  static constexpr int kWaves = kTokenMergeWaves;
  int64_t items() const { return images * groups; }
  template <class T>
  MergeTokensParams<T> params(uint32_t workgroups) const {
    return {
        static_cast<const T*>(x), places, static_cast<T*>(y), images, tokens, groups, channels, workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    merge_tokens_body(params, block);
  }
};

struct UnmergeTokensProblem {
  const void* x = nullptr;
  const float* places = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;         // of x
  std::optional<DType> result = {};  // of residual and y, where it is another one
  int64_t images = 0, groups = 1, tokens = 0, channels = 1;

  static constexpr const char* kOp = "unmerge_tokens";
  static constexpr const char* kExample = "f32 [2,41->63,83]";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).optional_type("->", p.result, kActivationTypes).word(" [").extent(p.images).word(",");
    t.extent(p.groups, 1).word("->").extent(p.tokens).word(",").extent(p.channels, 1).word("]");
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("x", p.x, {p.images, p.groups, p.channels}, p.dtype);
    v.input("places", p.places, {p.images, p.tokens}, DType::kF32, 0, static_cast<float>(p.groups));
    v.input("residual", p.residual, {p.images, p.tokens, p.channels}, p.types()[1]);
    v.output("y", p.y, {p.images, p.tokens, p.channels}, p.types()[1]);
  }
  double flops() const { return static_cast<double>(images * tokens * channels); }
  exact::Sum exact(const auto& in, int64_t i) const {
    const int64_t channel = i % channels, token = i / channels, image = token / tokens;
    exact::Sum sum;
    sum.add(in(2, i));
    sum.add(in(0, (image * groups + static_cast<int64_t>(in(1, token))) * channels + channel));
    return sum;
  }

  using Kernels = Storages<FloatStorage, FloatStorage>;
  std::array<DType, 2> types() const { return {dtype, result.value_or(dtype)}; }
  static constexpr int kWaves = kTokenMergeWaves;
  int64_t items() const { return images * tokens; }
  template <class T, class R>
  UnmergeTokensParams<T, R> params(uint32_t workgroups) const {
    return {static_cast<const T*>(x),
            places,
            static_cast<const R*>(residual),
            static_cast<R*>(y),
            images,
            tokens,
            groups,
            channels,
            workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    unmerge_tokens_body(params, block);
  }
};

void require_places(const Tensor& places, int64_t images, int64_t tokens, const char* op) {
  require_contiguous(places, op, "places");
  require(places.shape() == Shape{images, tokens} && places.dtype() == DType::kF32, op, ": expected places [",
          images, ",", tokens, "] f32, got ", places.shape(), " ", places.dtype());
}

}  // namespace

AnyOp merge_tokens_op() { return MemoryBound<MergeTokensProblem>::any(); }
AnyOp unmerge_tokens_op() { return MemoryBound<UnmergeTokensProblem>::any(); }

Tensor merge_tokens(Exec& ex, const Tensor& x, const Tensor& places, int64_t groups) {
  require_activation_type(x, "merge_tokens", "x");
  require_contiguous(x, "merge_tokens", "x");
  require(x.rank() == 3 && x.dim(2) > 0 && groups > 0, "merge_tokens: expected x [B,N,C] and groups, got ",
          x.shape(), " and ", groups);
  require_places(places, x.dim(0), x.dim(1), "merge_tokens");
  const MergeTokensProblem problem{
      .dtype = x.dtype(), .images = x.dim(0), .tokens = x.dim(1), .groups = groups, .channels = x.dim(2)};
  return run_op(ex, problem, {x, places});
}

Tensor unmerge_tokens(Exec& ex, const Tensor& x, const Tensor& places, const Tensor& residual) {
  require_activation_type(x, "unmerge_tokens", "x");
  require_activation_type(residual, "unmerge_tokens", "residual");
  require_contiguous(x, "unmerge_tokens", "x");
  require_contiguous(residual, "unmerge_tokens", "residual");
  require(x.rank() == 3 && residual.rank() == 3 && x.dim(0) == residual.dim(0) && x.dim(1) > 0 &&
              x.dim(2) == residual.dim(2) && x.dim(2) > 0,
          "unmerge_tokens: expected x [B,M,C] and residual [B,N,C], got ", x.shape(), " and ",
          residual.shape());
  require_places(places, x.dim(0), residual.dim(1), "unmerge_tokens");
  UnmergeTokensProblem problem{.dtype = x.dtype(),
                               .images = x.dim(0),
                               .groups = x.dim(1),
                               .tokens = residual.dim(1),
                               .channels = x.dim(2)};
  if (residual.dtype() != x.dtype()) problem.result = residual.dtype();
  return run_op(ex, problem, {x, places, residual});
}

}  // namespace rocm_sd
