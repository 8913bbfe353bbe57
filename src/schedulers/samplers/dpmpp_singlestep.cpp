// DPM++ 2S and 3S: DPM-Solver++ singlestep of order 1 to 3 (Lu et al. 2022, algorithm 1; Diffusers'
// DPMSolverSinglestep). A block of k schedule steps makes one step of order k: each level is evaluated once,
// and every level inside a block is reached from the block's start.
#include "schedulers/samplers/common.hpp"

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

}  // namespace

Tensor sample_dpmpp_singlestep(SamplerRun& run, Tensor x) {
  const std::vector<int> orders = block_orders(run.steps(), *run.options.order,
                                               *run.options.lower_order_final, run.sigma(run.steps()) == 0);
  const bool heun = *run.options.solver == SolverType::kHeun;
  std::deque<Tensor> denoised;  // newest first
  Tensor start;                 // x at the block's first level
  for (int i = 0; i < run.steps(); ++i) {
    push_history(denoised, run.denoise(x, i), 3);
    const int order = std::min(orders[static_cast<size_t>(i)], i + 1);
    const int first = i - order + 1;
    if (order == 1) start = x;
    const double from = run.sigma(first), to = run.sigma(i + 1);
    if (order == 1) {
      x = euler_step(run.ex, start, denoised[0], from, to);
    } else {
      const double h = std::log(from / to);
      const double phi1 = -std::expm1(-h), phi2 = 1 - phi1 / h;
      const double r0 = std::log(from / run.sigma(i)) / h;
      if (order == 2) {
        const double w = (heun ? phi2 : 0.5 * phi1) / r0;
        x = linear_combination(run.ex, {{to / from, start}, {phi1 - w, denoised[1]}, {w, denoised[0]}});
      } else {
        const double r1 = std::log(from / run.sigma(i - 1)) / h;
        double w1 = 0, w0 = phi2;  // of (m1 - m2) / r1 and (m0 - m2) / r0
        if (heun) {
          const double phi3 = 0.5 - phi2 / h;
          w1 = (phi2 * r0 - 2 * phi3) / (r0 - r1);
          w0 = (2 * phi3 - phi2 * r1) / (r0 - r1);
        }
        w1 /= r1;
        w0 /= r0;
        x = linear_combination(
            run.ex,
            {{to / from, start}, {phi1 - w1 - w0, denoised[2]}, {w1, denoised[1]}, {w0, denoised[0]}});
      }
    }
    run.report(i, run.sigma(i), x, denoised[0]);
  }
  return x;
}

}  // namespace rocm_sd
