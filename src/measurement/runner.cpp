#include "measurement/runner.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.hpp"
#include "base/format.hpp"
#include "kernels/select.hpp"

namespace rocm_sd::measurement {
namespace {

bool stores_sums(std::string_view choice) { return choice.starts_with("miopen"); }
double tolerance_of(const ExactValue& exact, std::string_view choice) {
  return exact.tolerance + (stores_sums(choice) ? exact.stored_sum : 0);
}

bool is_slow(const std::string& choice) { return choice == "ref" || choice.starts_with("scalar"); }

// Fewer samples where one costs a lot: all keys of a query, all pixels of a group.
int affordable_samples(const Workload& workload, int wanted) {
  return static_cast<int>(
      std::clamp(2e8 / std::max(workload.reads_per_output, 1.0), 16.0, static_cast<double>(wanted)));
}

}  // namespace

std::vector<std::string> candidates_of(Device& device, const Workload& workload, const Inputs& inputs,
                                       Slow slow) {
  Arena arena(device);
  Exec ex(arena, Mode::kPlan);
  const CandidateRecord record(workload.op);
  const tuning::TuningScope untuned(nullptr);
  // What runs slowest prepares nothing; where there is no such row, planning is cheap anyway.
  const ForcedImpl reference(workload.op, device.kind() == DeviceKind::kHost ? "ref" : "");
  arena.begin_plan();
  try {
    workload.run(ex, inputs.operands(), inputs.weight());
  } catch (...) {
    arena.end_plan();
    throw;
  }
  arena.end_plan();
  std::vector<std::string> out = record.candidates();
  if (slow == Slow::kLeftOut) std::erase_if(out, is_slow);
  return out;
}

Runner::Runner(Arena& arena, const Workload& workload, const Inputs& inputs, const Weight& weight,
               std::string choice)
    : arena_(arena),
      op_(workload.op),
      choice_(std::move(choice)),
      problem_(workload),
      inputs_(inputs),
      weight_(weight),
      program_(workload.op, arena, [this](Exec& ex) {
        std::optional<ForcedImpl> forced;
        if (!choice_.empty()) forced.emplace(op_, choice_);
        for (const Result& result : problem_.run(ex, inputs_.operands(), weight_)) {
          if (result.role != Role::kY && result.role != Role::kOutput) continue;
          y_ = result.tensor.data();
          count_ = result.tensor.numel();
          dtype_ = result.tensor.dtype();
        }
      }) {
  program_.plan();
}

std::vector<float> Runner::output() {
  program_.run();  // captures, which fixes where the output lies
  Device& device = arena_.device();
  const size_t bytes = static_cast<size_t>(count_) * dtype_size(dtype_);
  std::vector<char> stored(bytes, '\xff');  // NaN in every type
  if (bytes > 0) device.copy_to_device(y_, stored.data(), bytes);
  program_.run();
  device.synchronize();
  std::fill(stored.begin(), stored.end(), '\xff');
  if (bytes > 0) device.copy_to_host(stored.data(), y_, bytes);
  std::vector<float> values(static_cast<size_t>(count_));
  convert_elements(stored.data(), dtype_, values.data(), DType::kF32, count_);
  return values;
}

std::string Accuracy::describe() const {
  return fmt::format("{} of {} samples' tolerance at element {} ({} for {}), rms {:.1e}",
                     std::isfinite(worst) ? fmt::format("{:.2f}", worst) : "far beyond", samples, worst_at,
                     got, want, relative_rms);
}

Accuracy check_output(const Workload& workload, const Inputs& inputs, const std::vector<float>& output,
                      std::string_view choice, int samples) {
  Accuracy out;
  const auto count = static_cast<int64_t>(output.size());
  if (count == 0) return out;
  std::mt19937_64 random(11);
  std::vector<int64_t> places = {0, count - 1};
  for (int i = affordable_samples(workload, samples); i > 0; --i)
    places.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(count)));
  std::vector<ExactValue> exact(places.size());
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < places.size(); ++i) exact[i] = workload.exact(inputs, places[i]);
  double square_error = 0, square = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const double got = output[static_cast<size_t>(places[i])];
    const double error = std::fabs(got - exact[i].value);
    const double ratio = std::isfinite(got) ? error / tolerance_of(exact[i], choice) : HUGE_VAL;
    square_error += std::isfinite(got) ? error * error : 0;
    square += exact[i].value * exact[i].value;
    if (i > 0 && !(ratio > out.worst)) continue;
    out.worst = ratio;
    out.worst_at = places[i];
    out.got = got;
    out.want = exact[i].value;
  }
  out.samples = static_cast<int64_t>(places.size());
  out.relative_rms = square > 0 ? std::sqrt(square_error / square) : std::sqrt(square_error);
  return out;
}

int64_t count_differences(const Workload& workload, const Inputs& inputs, const std::vector<float>& a,
                          const std::vector<float>& b, std::string_view choice) {
  require<InternalError>(a.size() == b.size(), "count_differences: ", a.size(), " and ", b.size(),
                         " elements");
  if (a.empty()) return 0;
  // A tolerance has a part that grows with the value, which is known here, and one of the sums' magnitudes.
  double rest = 0, unit = 0;
  std::mt19937_64 random(12);
  for (int i = 0; i < 16; ++i) {
    const ExactValue exact = workload.exact(inputs, static_cast<int64_t>(random() % a.size()));
    rest = std::max(rest, tolerance_of(exact, choice));
  }
  unit = result_type(workload) == DType::kF32   ? 0x1p-24
         : result_type(workload) == DType::kF16 ? 0x1p-11
                                                : 0x1p-8;
  int64_t count = 0;
#pragma omp parallel for schedule(static) reduction(+ : count)
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
    const double allowed = 4 * rest + 4 * unit * (std::fabs(a[i]) + std::fabs(b[i]));
    if (!(std::isfinite(difference) && difference <= allowed)) ++count;
  }
  return count;
}

}  // namespace rocm_sd::measurement
