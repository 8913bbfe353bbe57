// attention in double precision, one row of scores at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/attention_impl.hpp"
#include "kernels/reference.hpp"

namespace rocm_sd {
namespace {

// Head h of image b as doubles, [count, head_dim].
std::vector<double> gather(const AttentionProblem& p, const AttentionProblem::Rows& rows, int64_t count,
                           int64_t b, int64_t h) {
  std::vector<double> out(static_cast<size_t>(count * p.head_dim));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t d = 0; d < p.head_dim; ++d)
      out[static_cast<size_t>(i * p.head_dim + d)] =
          ref::load(rows.data, p.dtype, b * rows.image + i * rows.row + h * p.head_dim + d);
  return out;
}

// Softmax of the scores in place; all zero where every key is hidden.
void softmax(std::vector<double>& scores) {
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  double highest = kHidden, sum = 0;
  for (const double s : scores) highest = s > highest || std::isnan(s) ? s : highest;
  for (double& s : scores) sum += s = highest == kHidden ? 0.0 : std::exp(s - highest);
  for (double& s : scores) s = sum == 0 ? 0.0 : s / sum;
}

void attend_row(const AttentionProblem& p, int64_t b, int64_t h, int64_t i, const double* q,
                const std::vector<double>& k, const std::vector<double>& v) {
  std::vector<double> scores(static_cast<size_t>(p.keys)), sums(static_cast<size_t>(p.head_dim));
  const int64_t* strides = p.mask_strides;
  for (int64_t j = 0; j < p.keys; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < p.head_dim; ++d) dot += q[d] * k[static_cast<size_t>(j * p.head_dim + d)];
    dot *= static_cast<double>(p.scale);
    if (p.mask) dot += p.mask[b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3]];
    if (p.causal && j > i) dot = -std::numeric_limits<double>::infinity();
    scores[static_cast<size_t>(j)] = dot;
  }
  softmax(scores);
  for (int64_t j = 0; j < p.keys; ++j) {
    if (scores[static_cast<size_t>(j)] == 0) continue;  // a hidden key may hold anything
    for (int64_t d = 0; d < p.head_dim; ++d)
      sums[static_cast<size_t>(d)] +=
          scores[static_cast<size_t>(j)] * v[static_cast<size_t>(j * p.head_dim + d)];
  }
  const int64_t y = ((b * p.queries + i) * p.heads + h) * p.head_dim;
  for (int64_t d = 0; d < p.head_dim; ++d) ref::store(p.y, p.dtype, y + d, sums[static_cast<size_t>(d)]);
}

void attend(const AttentionProblem& p) {
  for (int64_t bh = 0; bh < p.batch * p.heads; ++bh) {
    const int64_t b = bh / p.heads, h = bh % p.heads;
    const std::vector<double> q = gather(p, p.q, p.queries, b, h), k = gather(p, p.k, p.keys, b, h),
                              v = gather(p, p.v, p.keys, b, h);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < p.queries; ++i) attend_row(p, b, h, i, q.data() + i * p.head_dim, k, v);
  }
}

}  // namespace

void run_attention_ref(Exec& ex, const AttentionProblem& problem) {
  launch_problem(ex, problem, "ref", attend);
}

}  // namespace rocm_sd
