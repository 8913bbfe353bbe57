// Embeddings, plainly.
#include <cmath>

#include "kernels/embed/embed_impl.hpp"
#include "kernels/reference.hpp"

namespace rocm_sd {
namespace {

void embed_tokens_ref(const EmbedTokensProblem& p) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < p.rows * p.tokens; ++i) {
    const int64_t id = p.ids[i] >= 0 && p.ids[i] < p.vocabulary ? p.ids[i] : 0;
    for (int64_t c = 0; c < p.width; ++c)
      ref::store(p.y, p.y_type, i * p.width + c,
                 ref::load(p.table, p.table_type, id * p.width + c) +
                     ref::load(p.positions, p.positions_type, i % p.tokens * p.width + c));
  }
}

// The one reference that computes in float: an angle of 999 rounded to float is off by 3e-5 of a radian, and
// a model was trained with exactly that angle.
void timestep_embedding_ref(const TimestepEmbeddingProblem& p) {
  const int64_t half = p.dim / 2;
  const float decay = -static_cast<float>(std::log(static_cast<double>(p.args.max_period)));
  for (int64_t b = 0; b < p.count; ++b) {
    for (int64_t i = 0; i < half; ++i) {
      const float exponent =
          decay * static_cast<float>(i) / (static_cast<float>(half) - p.args.downscale_freq_shift);
      const float angle = p.t[b] * static_cast<float>(std::exp(static_cast<double>(exponent)));
      const double sine = std::sin(static_cast<double>(angle)), cosine = std::cos(static_cast<double>(angle));
      ref::store(p.y, p.y_type, b * p.dim + i, p.args.flip_sin_to_cos ? cosine : sine);
      ref::store(p.y, p.y_type, b * p.dim + half + i, p.args.flip_sin_to_cos ? sine : cosine);
    }
    if (p.dim % 2) ref::store(p.y, p.y_type, b * p.dim + p.dim - 1, 0);
  }
}

}  // namespace

void run_embed_tokens_ref(Exec& ex, const EmbedTokensProblem& problem) {
  launch_problem(ex, problem, "ref", embed_tokens_ref);
}
void run_timestep_embedding_ref(Exec& ex, const TimestepEmbeddingProblem& problem) {
  launch_problem(ex, problem, "ref", timestep_embedding_ref);
}

}  // namespace rocm_sd
