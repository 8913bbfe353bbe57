#include "kernels/embed/embed.hpp"

#include <cmath>

#include "composable_kernels/fused/embedding.hpp"
#include "kernels/embed/embed_configs.hpp"
#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 30;  // of rows, columns or angles: the kernels count in 32 bits

// y[r] = table[ids[r]] + positions[r % tokens].
struct EmbedTokensProblem {
  const int32_t* ids = nullptr;
  const void* table_data = nullptr;
  const void* positions_data = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;                        // of y
  std::optional<DType> table = {}, positions = {};  // where they are not y's type, and not the table's
  int64_t rows = 0, tokens = 1, width = 1;
  int64_t vocabulary = 0, places = 0;  // of the table and of the positions: the text does not say them

  static constexpr const char* kOp = "embed_tokens";
  static constexpr const char* kExample = "bf16 by f16 [2,7,48]";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).optional_type(" by ", p.table, kActivationTypes);
    t.optional_type(" and ", p.positions, kActivationTypes);
    t.word(" [").extent(p.rows).word(",").extent(p.tokens).word(",").extent(p.width).word("]");
    t.set(p.vocabulary, 1000);
    t.set(p.places, p.tokens);
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("ids", p.ids, {p.rows, p.tokens}, DType::kI32, 0, static_cast<float>(p.vocabulary));
    v.input("tokens", p.table_data, {p.vocabulary, p.width}, p.types()[0]);
    v.input("positions", p.positions_data, {p.places, p.width}, p.types()[1]);
    v.output("y", p.y, {p.rows, p.tokens, p.width}, p.dtype);
  }
  double flops() const { return static_cast<double>(rows * tokens * width); }
  double bytes() const { return flops() * static_cast<double>(dtype_size(types()[0]) + dtype_size(dtype)); }
  exact::Sum exact(const auto& in, int64_t i) const {
    const auto listed = static_cast<int64_t>(in(0, i / width));
    const int64_t id = listed >= 0 && listed < vocabulary ? listed : 0;
    exact::Sum sum;
    sum.add(in(1, id * width + i % width));
    sum.add(in(2, i / width % tokens * width + i % width));
    return sum;
  }

  using Kernels = Storages<FloatStorage, FloatStorage, FloatStorage>;
  std::array<DType, 3> types() const {
    return {table.value_or(dtype), positions.value_or(table.value_or(dtype)), dtype};
  }
  std::string kernel_name() const { return concat("embed_tokens_", types()[0], "_", dtype); }
  static constexpr int kWaves = embed_configs::kTokenWaves;
  int64_t items() const { return rows * tokens; }
  Refusal refuse_gpu() const {
    if (types()[0] != types()[1]) return "takes tables of one type";
    if (rows > kMaxCount || tokens > kMaxCount || rows * tokens > kMaxCount)
      return "takes no more than 2^30 tokens";
    if (!memory_bound::is_aligned(table_data) || !memory_bound::is_aligned(positions_data))
      return "takes data at multiples of 16 bytes only";
    return std::nullopt;
  }
  template <class Table, class Positions, class Y>
  EmbedTokensParams<Table, Positions, Y> params(uint32_t workgroups) const {
    return {ids,
            static_cast<const Table*>(table_data),
            static_cast<const Positions*>(positions_data),
            static_cast<Y*>(y),
            rows * tokens,
            tokens,
            width,
            vocabulary,
            workgroups};
  }
  template <class TableType, class PositionsType, class YType>
  struct Cfg {
    using Table = TableType;
    using Positions = PositionsType;
    using Y = YType;
  };
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    embed_tokens_body<Arch, Cfg<T...>>(params, block);
  }
};

// y[b] = cosines, then sines, of t[b] * frequency[i], or the other way round.
struct TimestepEmbeddingProblem {
  const float* t = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;
  int64_t count = 0, dim = 2;
  TimestepEmbeddingArgs args = {};  // the text does not say them

  static constexpr const char* kOp = "timestep_embedding";
  static constexpr const char* kExample = "f32 [3,320]";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).word(" [").extent(p.count).word(",").extent(p.dim, 2).word("]");
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("t", p.t, {p.count}, DType::kF32, 0, 1000);
    v.output("y", p.y, {p.count, p.dim}, p.dtype);
  }
  double flops() const { return 20.0 * static_cast<double>(count * dim); }
  // The one reference that computes in float: an angle of 999 rounded to float is off by 3e-5 of a radian,
  // and a model was trained with exactly that angle.
  exact::Sum exact(const auto& in, int64_t element) const {
    const int64_t half = dim / 2, column = element % dim, i = column % std::max<int64_t>(half, 1);
    if (column == 2 * half) return {};
    const float decay = -static_cast<float>(std::log(static_cast<double>(args.max_period)));
    const float exponent =
        decay * static_cast<float>(i) / (static_cast<float>(half) - args.downscale_freq_shift);
    const float angle = static_cast<float>(in(0, element / dim)) *
                        static_cast<float>(std::exp(static_cast<double>(exponent)));
    const bool cosine = (column < half) == args.flip_sin_to_cos;
    return {cosine ? std::cos(static_cast<double>(angle)) : std::sin(static_cast<double>(angle)),
            1 + std::fabs(static_cast<double>(angle))};
  }

  static constexpr uint32_t kThreads = embed_configs::kTimestepThreads;
  int64_t items() const { return count * (dim / 2 + dim % 2); }
  Refusal refuse_gpu() const {
    if (count > kMaxCount || dim > kMaxCount || count * dim > kMaxCount)
      return "takes no more than 2^30 angles";
    return std::nullopt;
  }
  template <class Y>
  TimestepEmbeddingParams<Y> params(uint32_t workgroups) const {
    return {t,
            static_cast<Y*>(y),
            static_cast<int32_t>(count),
            static_cast<int32_t>(dim),
            args.flip_sin_to_cos,
            args.downscale_freq_shift,
            -static_cast<float>(std::log(static_cast<double>(args.max_period))),
            workgroups};
  }
  template <class Type>
  struct Cfg {
    using Y = Type;
  };
  template <class Arch, class Y>
  static void body(const auto& params, const Block<Arch>& block) {
    timestep_embedding_body<Arch, Cfg<Y>>(params, block);
  }
};

void check_table(const Tensor& table, std::string_view name) {
  require(table && table.rank() == 2, "embed_tokens: the table of ", name, " must be [rows,C]",
          table ? concat(", is ", table.shape()) : std::string(", is missing"));
  require_activation_type(table, "embed_tokens", name);
  require_contiguous(table, "embed_tokens", name);
}
void check_output(DType dtype, std::string_view op) {
  require<UsageError>(is_activation_type(dtype), op, ": the result must be f32, bf16 or f16, not ", dtype);
}
std::optional<DType> unless(DType type, DType usual) {
  return type == usual ? std::nullopt : std::optional(type);
}

}  // namespace

AnyOp embed_tokens_op() { return MemoryBound<EmbedTokensProblem>::any(); }
AnyOp timestep_embedding_op() { return MemoryBound<TimestepEmbeddingProblem>::any(); }

Tensor embed_tokens(Exec& ex, const Tensor& ids, const EmbeddingWeight& tokens,
                    const EmbeddingWeight& positions, DType dtype) {
  require(ids.rank() == 2 && ids.dtype() == DType::kI32, "embed_tokens: ids must be i32 [B,T], are ",
          ids.dtype(), " ", ids.shape());
  require_contiguous(ids, "embed_tokens", "ids");
  check_table(tokens.table, "tokens");
  check_table(positions.table, "positions");
  check_output(dtype, "embed_tokens");
  const int64_t width = tokens.table.dim(1);
  require(tokens.table.dim(0) >= 1, "embed_tokens: the table of tokens ", tokens.table.shape(), " is empty");
  require(positions.table.dim(1) == width && positions.table.dim(0) >= ids.dim(1), "embed_tokens: positions ",
          positions.table.shape(), " do not serve ids ", ids.shape(), " of width ", width);
  const EmbedTokensProblem problem{.dtype = dtype,
                                   .table = unless(tokens.table.dtype(), dtype),
                                   .positions = unless(positions.table.dtype(), tokens.table.dtype()),
                                   .rows = ids.dim(0),
                                   .tokens = ids.dim(1),
                                   .width = width,
                                   .vocabulary = tokens.table.dim(0),
                                   .places = positions.table.dim(0)};
  return run_op(ex, problem, {ids, tokens.table, positions.table});
}

Tensor timestep_embedding(Exec& ex, const Tensor& t, int64_t dim, DType dtype,
                          const TimestepEmbeddingArgs& args) {
  require(t.rank() == 1 && t.dtype() == DType::kF32, "timestep_embedding: t must be f32 [B], is ", t.dtype(),
          " ", t.shape());
  require_contiguous(t, "timestep_embedding", "t");
  check_output(dtype, "timestep_embedding");
  require<UsageError>(dim >= 2 && static_cast<float>(dim / 2) > args.downscale_freq_shift,
                      "timestep_embedding: a width of ", dim, " with a shift of ", args.downscale_freq_shift,
                      " has no frequencies");
  const TimestepEmbeddingProblem problem{.dtype = dtype, .count = t.dim(0), .dim = dim, .args = args};
  return run_op(ex, problem, {t});
}

}  // namespace rocm_sd
