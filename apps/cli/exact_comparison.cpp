#include "apps/cli/exact_comparison.hpp"

#include <fmt/format.h>

#include "apps/cli/generate_report.hpp"
#include "base/error.hpp"

namespace rocm_sd::cli {
namespace {

double sampling_seconds(const GenerateResult& result) {
  double sum = 0;  // of both passes, where there are two, and of details as a whole
  for (const StageTime& t : result.times)
    if (t.stage == "sample" || t.stage == "details") sum += t.seconds;
  return sum;
}

}  // namespace

GenerateRequest ExactComparison::exact(GenerateRequest request) {
  require<UsageError>(
      request.savings.active(),
      "compare-exact: nothing to compare: expected a saving (--deep-cache, --t-gate, --sada, --token-merge)");
  request.savings = {};
  return request;
}

bool ExactComparison::take(const GenerateResult& result) {
  if (pictures_.empty()) {
    for (const Picture& picture : result.pictures) pictures_.push_back(picture.image);
    seconds_ = sampling_seconds(result);
    return true;
  }
  const double seconds = sampling_seconds(result);
  for (size_t i = 0; i < pictures_.size(); ++i)
    fmt::print(stderr, "against the exact picture: {}; sampling {:.3f} s, exact {:.3f} s ({:.2f} times)\n",
               quality_text(picture_quality(pictures_[i], result.pictures.at(i).image)), seconds, seconds_,
               seconds_ / seconds);
  pictures_.clear();
  return false;
}

}  // namespace rocm_sd::cli
