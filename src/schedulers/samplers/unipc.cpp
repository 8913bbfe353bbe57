// UniPC: a multistep predictor, and a corrector that reuses the prediction made at the new level (Zhao et
// al., "UniPC: A Unified Predictor-Corrector Framework for Fast Sampling of Diffusion Models", 2023,
// algorithms 1 and 2, data or noise prediction, B(h) = h (bh1) or e^h - 1 (bh2)).
#include <algorithm>
#include <array>

#include "schedulers/samplers/common.hpp"
#include "schedulers/samplers/solver_weights.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxOrder = 3;
using Matrix = std::array<std::array<double, kMaxOrder>, kMaxOrder>;
using Vector = std::array<double, kMaxOrder>;

// Solves the leading n x n part of a * x = b by elimination with partial pivoting.
Vector solve(Matrix a, Vector b, int n) {
  for (int column = 0; column < n; ++column) {
    int pivot = column;
    for (int row = column + 1; row < n; ++row)
      if (std::fabs(a[row][column]) > std::fabs(a[pivot][column])) pivot = row;
    std::swap(a[pivot], a[column]);
    std::swap(b[pivot], b[column]);
    for (int row = column + 1; row < n; ++row) {
      const double factor = a[row][column] / a[column][column];
      for (int k = column; k < n; ++k) a[row][k] -= factor * a[column][k];
      b[row] -= factor * b[column];
    }
  }
  Vector x{};
  for (int row = n - 1; row >= 0; --row) {
    x[row] = b[row];
    for (int k = row + 1; k < n; ++k) x[row] -= a[row][k] * x[k];
    x[row] /= a[row][row];
  }
  return x;
}

struct Stage {
  double from = 0, to = 0;
  int order = 1;
  Vector r{};  // positions, in log sigma and units of the step, of the predictions: older ones < 0, the new
               // one 1
};

Stage make_stage(const SamplerRun& run, int i, int order) {
  Stage stage{run.sigma(i), run.sigma(i + 1), order};
  const double h = std::log(stage.from / stage.to);
  for (int k = 1; k < order; ++k) stage.r[k - 1] = std::log(stage.from / run.sigma(i - k)) / h;
  stage.r[order - 1] = 1;
  return stage;
}

// x at stage.to. outputs[k] is the prediction k levels before stage.from's; `at_end` the one at stage.to for
// the corrector, or none for the predictor.
Tensor advance(SamplerRun& run, const Stage& stage, const Tensor& x, const std::deque<Tensor>& outputs,
               const Tensor* at_end) {
  const double h = std::log(stage.from / stage.to);  // may be infinite, at order 1
  const bool noise = run.options.predict_noise;
  const double hh = noise ? h : -h;
  const double phi1 = std::expm1(hh);
  const double scale = *run.options.solver == SolverType::kBh1 ? hh : phi1;
  const double unit = noise ? stage.to : 1;  // of the weights of predictions
  std::vector<Term> terms = {{noise ? 1 : stage.to / stage.from, x},
                             {noise && stage.to == 0 ? -stage.from : -unit * phi1, outputs[0]}};
  Matrix powers{};
  Vector moments{};
  double phi = phi1 / hh - 1, factorial = 1;
  for (int i = 0; i < stage.order; ++i) {
    for (int k = 0; k < stage.order; ++k) powers[i][k] = std::pow(stage.r[k], i);
    moments[i] = phi * factorial / scale;
    factorial *= i + 2;
    phi = phi / hh - 1 / factorial;
  }
  const int unknowns = at_end ? stage.order : stage.order - 1;
  if (unknowns == 0) return linear_combination(run.ex, terms);
  // Of one unknown, the paper's own choice is 1/2.
  Vector rho{0.5};
  if (unknowns > 1 || (at_end && stage.order > 1)) rho = solve(powers, moments, unknowns);
  for (int k = 0; k < stage.order - 1; ++k) {
    const double w = -unit * scale * rho[k] / stage.r[k];
    terms[1].factor -= w;
    terms.push_back({w, outputs[static_cast<size_t>(k) + 1]});
  }
  if (at_end) {
    const double w = -unit * scale * rho[stage.order - 1];
    terms[1].factor -= w;
    terms.push_back({w, *at_end});
  }
  return linear_combination(run.ex, terms);
}

}  // namespace

Tensor sample_unipc(SamplerRun& run, Tensor x) {
  std::deque<Tensor> outputs;  // newest first
  Tensor start;                // x at the last level, corrected
  Stage stage;                 // the last step
  const std::vector<int>& uncorrected = run.options.uncorrected_steps;
  for (int i = 0; i < run.steps(); ++i) {
    const Tensor denoised = run.denoise(x, i);
    const Tensor output = solver_output(run, x, denoised, run.sigma(i));
    const bool skipped = std::ranges::find(uncorrected, run.plan.skipped_steps + i - 1) != uncorrected.end();
    if (i > 0 && !skipped) x = advance(run, stage, start, outputs, &output);
    push_history(outputs, output, kMaxOrder);
    int order = std::min(*run.options.order, i + 1);
    if (*run.options.lower_order_final) order = std::min(order, run.steps_left(i));
    if (run.sigma(i + 1) == 0 || run.sigma(i + 1) >= run.sigma(i)) order = 1;
    stage = make_stage(run, i, order);
    start = x;
    x = advance(run, stage, start, outputs, nullptr);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
