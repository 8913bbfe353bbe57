#include "schedulers/step_skipping.hpp"

#include <cmath>

#include "base/error.hpp"
#include "kernels/step/step.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxInARow = 4;
constexpr double kFirst = 0.2, kLast = 0.94;  // shares of the steps

}  // namespace

StepSkipper::StepSkipper(std::vector<double> sigmas, std::function<void()> on_skip)
    : sigmas_(std::move(sigmas)), on_skip_(std::move(on_skip)) {
  require<InternalError>(sigmas_.size() >= 2, "step skipping: a run of no step");
}

bool StepSkipper::is_stable(Exec& ex, const Tensor& z) const {
  const std::deque<Tensor>& h = increments_;
  const Tensor away =
      linear_combination(ex, {{1, z}, {-1, z_}, {-0.625, h[0]}, {-0.75, h[1]}, {0.375, h[2]}});  // z - w
  const Tensor bend = linear_combination(ex, {{1, h[0]}, {-2, h[1]}, {1, h[2]}});
  const std::vector<float> a = to_floats(ex.device(), away), b = to_floats(ex.device(), bend);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum >= 0;
}

Tensor StepSkipper::foretold(Exec& ex, const Tensor& x, int i) {
  foretold_ = false;
  const auto steps = static_cast<double>(sigmas_.size() - 1);
  const double sigma = sigmas_.at(static_cast<size_t>(i));
  const bool known = increments_.size() == 3 && sigma > 0;
  const bool allowed = i > static_cast<int>(kFirst * steps) && i <= static_cast<int>(kLast * steps) && known;
  Tensor out;
  if (allowed && in_a_row_ < kMaxInARow) {
    const double norm = std::sqrt(1 + sigma * sigma);
    if (is_stable(ex, linear_combination(ex, {{1 / norm, x}})))
      out = linear_combination(ex, {{norm, z_},
                                    {0.625 * norm, increments_[0]},
                                    {0.75 * norm, increments_[1]},
                                    {-0.375 * norm, increments_[2]},
                                    {-sigma, noise_}});
  }
  foretold_ = static_cast<bool>(out);
  in_a_row_ = foretold_ ? in_a_row_ + 1 : 0;
  if (foretold_ && on_skip_) on_skip_();
  return out;
}

void StepSkipper::note(Exec& ex, const Tensor& x, const Tensor& clean, int i) {
  const double sigma = sigmas_.at(static_cast<size_t>(i)), next = sigmas_.at(static_cast<size_t>(i) + 1);
  if (sigma <= 0) return;
  const double norm = std::sqrt(1 + sigma * sigma);
  // A foretold step has the noise of the one before.
  if (!foretold_) noise_ = linear_combination(ex, {{1 / sigma, x}, {-1 / sigma, clean}});
  z_ = linear_combination(ex, {{1 / norm, x}});
  const double step = next - sigma;  // dz/dsigma = noise / norm - x sigma / norm^3
  increments_.push_front(
      linear_combination(ex, {{step / norm, noise_}, {-step * sigma / (norm * norm * norm), x}}));
  if (increments_.size() > 3) increments_.pop_back();
}

}  // namespace rocm_sd
