#include "apps/cli/background_tuning.hpp"

#include "apps/cli/tuning_problems.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "measurement/explore.hpp"
#include "tuning/choices.hpp"

namespace rocm_sd::cli {

BackgroundTuning::BackgroundTuning(const std::string& device, double seconds, std::function<bool()> cancelled)
    : device_(open_counting_device(device)), seconds_(seconds), cancelled_(std::move(cancelled)) {
  const std::filesystem::path path = tuning::user_table_file(tuning::identity_of(device_));
  require<UsageError>(!path.empty(), "tune: neither XDG_CACHE_HOME nor HOME is set");
  journal_ = std::make_unique<tuning::Journal>(path);
}

void BackgroundTuning::spend() {
  if (!journal_ || record_.choices().size() == nothing_new_) return;
  std::vector<measurement::PlannedWorkload> problems;
  for (const ChoiceRecord::Choice& choice : record_.choices())
    add_problem(problems, choice.op, choice.problem, 1);
  const size_t choices = record_.choices().size();
  try {
    const measurement::TuneReport report =
        measurement::tune(device_, problems, *journal_,
                          {.seconds = seconds_,
                           .note = [](const std::string& line) { log().warn("tuning: {}", line); },
                           .cancelled = cancelled_});
    log().info("tuning: {} shapes tuned, {} known, {} left; for the next run", report.done, report.kept,
               report.left);
    if (report.left == 0) nothing_new_ = choices;
  } catch (const Error& error) {
    log().warn("tuning: {}; no more of it", error.what());
    journal_.reset();
  }
}

}  // namespace rocm_sd::cli
