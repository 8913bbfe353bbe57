// The portable bodies of the embeddings on the host's threads. They move little data: the host has no faster
// form.
#include "kernels/embed/embed_params.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

template <class TableType, class PositionsType, class Out>
struct TokensCfg {
  using Table = TableType;
  using Positions = PositionsType;
  using Y = Out;
};
template <class Out>
struct TimestepCfg {
  using Y = Out;
};

void embed_tokens_scalar(const EmbedTokensProblem& p) {
  with_storage(p.table_type, [&](auto table) {
    with_storage(p.positions_type, [&](auto positions) {
      with_storage(p.y_type, [&](auto out) {
        using Cfg = TokensCfg<decltype(table), decltype(positions), decltype(out)>;
        const EmbedTokensParams<decltype(table), decltype(positions), decltype(out)> params{
            p.ids,
            static_cast<const decltype(table)*>(p.table),
            static_cast<const decltype(positions)*>(p.positions),
            static_cast<decltype(out)*>(p.y),
            p.rows * p.tokens,
            p.tokens,
            p.width,
            p.vocabulary,
            1};
        for_each_block(params.rows,
                       [&](const Block<Scalar>& block) { embed_tokens_body<Scalar, Cfg>(params, block); });
      });
    });
  });
}

void timestep_embedding_scalar(const TimestepEmbeddingProblem& p) {
  with_storage(p.y_type, [&](auto out) {
    using Y = decltype(out);
    const auto params = timestep_params<Y>(p, 1);
    for_each_block(p.count, [&](const Block<Scalar>& block) {
      timestep_embedding_body<Scalar, TimestepCfg<Y>>(params, block);
    });
  });
}

}  // namespace

void run_embed_tokens_scalar(Exec& ex, const EmbedTokensProblem& problem) {
  launch_problem(ex, problem, "scalar", embed_tokens_scalar);
}
void run_timestep_embedding_scalar(Exec& ex, const TimestepEmbeddingProblem& problem) {
  launch_problem(ex, problem, "scalar", timestep_embedding_scalar);
}

}  // namespace rocm_sd
