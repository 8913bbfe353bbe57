#include "server/worker_orders.hpp"

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "server/job_joining.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

// What each of several jobs has of its own. Seeds that nobody chose are drawn here, as the engine draws them.
json together(const std::vector<Work>& works) {
  json out = json::array();
  for (const Work& work : works) {
    const JoinedTexts texts = joined_texts(*work.request);
    json one = {
        {"id", work.id}, {"prompt", texts.prompt}, {"seed", texts.seed.value_or(std::random_device()())}};
    if (texts.negative_prompt) one["negative_prompt"] = *texts.negative_prompt;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

Order job_order(const std::vector<Work>& works, const std::string& model, const std::string& preview) {
  const JobRequest& r = *works.front().request;
  json files = json::array();
  std::string bytes;
  for (const Attachment& file : r.files) {
    files.push_back({{"option", file.option},
                     {"offset", bytes.size()},
                     {"size", file.bytes.size()},
                     {"joins", file.joins}});
    bytes += file.bytes;
  }
  json head = {{"type", "job"},
               {"id", works.front().id},
               {"options", r.options},
               {"files", files},
               {"rounds", r.rounds},
               {"format", r.format},
               {"quality", r.quality},
               {"metadata", r.metadata},
               {"invert_mask", r.inverts_mask},
               {"steps_factor", r.steps_factor},
               {"preview", preview},
               {"partials", r.partials},
               {"model", model}};
  if (!r.enlargement.upscaler.empty())
    head["enlargement"] = {{"upscaler", r.enlargement.upscaler},
                           {"factor", r.enlargement.factor},
                           {"width", r.enlargement.width},
                           {"height", r.enlargement.height},
                           {"crops", r.enlargement.crops}};
  if (works.size() > 1) head["together"] = together(works);
  return {head.dump(), std::move(bytes)};
}

JobError job_error(int code, const std::string& message) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kUsage: return {422, "invalid_request", message};
    case ExitCode::kFile: return {422, "invalid_file", message};
    case ExitCode::kOutOfMemory: return {422, "out_of_memory", message};
    case ExitCode::kNoDevice: return {503, "gpu_fault", message};
    default: return {500, "generation_failed", message};
  }
}

}  // namespace rocm_sd::server
