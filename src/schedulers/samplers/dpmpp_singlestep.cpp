// DPM++ 2S and 3S: DPM-Solver++ singlestep of order 1 to 3 (Lu et al. 2022, algorithm 1; Diffusers'
// DPMSolverSinglestep). A block of k schedule steps makes one step of order k: each level is evaluated once,
// and every level inside a block is reached from the block's start.
#include "schedulers/samplers/common.hpp"
#include "schedulers/samplers/solver_weights.hpp"

namespace rocm_sd {
namespace {

// Position within its block, 1.., of each step: the order that reaches the next level.
std::vector<int> block_orders(int steps, int order, bool lower_final, bool ends_at_zero) {
  std::vector<int> orders;
  const auto append_blocks = [&](int blocks, int length) {
    for (int b = 0; b < blocks; ++b)
      for (int k = 1; k <= length; ++k) orders.push_back(k);
  };
  // The last block is shortened so that the final step has order 1, and where that leaves a block of one
  // less, too.
  if (order > 1 && (lower_final || steps % order != 0)) {
    const int rest = steps % order;
    append_blocks(steps / order - (rest == 0 ? 1 : 0), order);
    if (rest == 0) {
      append_blocks(1, order - 1);
      append_blocks(1, 1);
    } else {
      append_blocks(1, rest);
    }
  } else {
    append_blocks(steps / order, order);
  }
  if (ends_at_zero) orders.back() = 1;
  return orders;
}

Tensor sample_singlestep(SamplerRun& run, Tensor x, double eta) {
  const std::vector<int> orders = block_orders(run.full_steps(), *run.options.order,
                                               *run.options.lower_order_final, run.sigma(run.steps()) == 0);
  const bool heun = *run.options.solver == SolverType::kHeun;
  std::deque<Tensor> outputs;  // newest first
  Tensor start;                // x at the block's first level
  for (int i = 0; i < run.steps(); ++i) {
    const Tensor denoised = run.denoise(x, i);
    push_history(outputs, solver_output(run, x, denoised, run.sigma(i)), 3);
    const int order = std::min(orders[static_cast<size_t>(run.plan.skipped_steps + i)], i + 1);
    const int first = i - order + 1;
    if (order == 1) start = x;
    const double from = run.sigma(first), to = run.sigma(i + 1);
    const SolverWeights w = solver_weights(from, to, eta, run.options.predict_noise);
    const Tensor& base = outputs[static_cast<size_t>(order) - 1];
    std::vector<Term> terms = {{w.x, start}, {w.d0, base}};
    if (order > 1) {
      const double h = std::log(from / to);
      const double r0 = std::log(from / run.sigma(i)) / h;
      double newest = (order == 3 || heun ? w.d1 : w.d1_midpoint) / r0,
             middle = 0;  // of m0 - base, m1 - base
      if (order == 3 && heun) {
        const double r1 = std::log(from / run.sigma(i - 1)) / h;
        newest = (2 * w.d2 - w.d1 * r1) / (r0 - r1) / r0;
        middle = (w.d1 * r0 - 2 * w.d2) / (r0 - r1) / r1;
      }
      terms[1].factor -= newest + middle;
      terms.push_back({newest, outputs[0]});
      if (order == 3) terms.push_back({middle, outputs[1]});
    }
    if (w.noise > 0) terms.push_back({w.noise * run.options.s_noise, run.noise_between(from, to)});
    x = linear_combination(run.ex, terms);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace

Tensor sample_dpmpp_singlestep(SamplerRun& run, Tensor x) { return sample_singlestep(run, std::move(x), 0); }
Tensor sample_dpmpp_singlestep_sde(SamplerRun& run, Tensor x) {
  return sample_singlestep(run, std::move(x), *run.options.eta);
}

}  // namespace rocm_sd
