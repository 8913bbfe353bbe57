#include "measurement/modelled.hpp"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "base/error.hpp"
#include "base/format.hpp"
#include "measurement/runner.hpp"

namespace rocm_sd::measurement {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

}  // namespace

int splits_of(const std::string& choice) {
  const size_t slash = choice.rfind('/');
  int splits = 1;
  if (slash != std::string::npos)
    std::from_chars(choice.data() + slash + 1, choice.data() + choice.size(), splits);
  return choice.ends_with('r') ? 1 : std::max(1, splits);  // "r": few tiles are split
}

std::optional<tuning::Record> modelled_choice(Device& device, const Workload& workload,
                                              const LaunchModel& seconds) {
  const Inputs inputs(device, workload);
  std::vector<std::string> names = candidates_of(device, workload, inputs);
  if (names.empty() || !names[0].starts_with("gpu ")) return std::nullopt;
  // What has no tiles the model knows nothing of: vendors' libraries, kernels without matrix instructions.
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("gpu "); });
  if (names.size() < 2) return std::nullopt;
  Arena arena(device);
  const Weight weight = inputs.weight();
  size_t best = 0;
  std::vector<double> times;
  for (const std::string& name : names) {
    const Runner runner(arena, workload, inputs, weight, name);
    times.push_back(seconds(workload, runner.launches(), splits_of(name)));
    if (times.back() < times[best]) best = times.size() - 1;
  }
  if (std::ranges::min(times) == std::ranges::max(times))
    return std::nullopt;  // the model sees no difference
  if (times[best] > times[0] * (1 - kLeastGain)) best = 0;
  return tuning::Record{
      tuning::identity_of(device), workload.op,    workload.text,          names[best], names[0],
      times[best] * 1e6,           times[0] * 1e6, tuning::Origin::kModel, today()};
}

}  // namespace rocm_sd::measurement
