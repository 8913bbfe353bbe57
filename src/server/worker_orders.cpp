#include "server/worker_orders.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace rocm_sd::server {

using nlohmann::json;

Order job_order(const Work& work, const std::string& model, const std::string& preview) {
  const JobRequest& r = *work.request;
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
               {"id", work.id},
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
    head["enlargement"] = {{"upscaler", r.enlargement.upscaler}, {"factor", r.enlargement.factor},
                           {"width", r.enlargement.width},       {"height", r.enlargement.height},
                           {"crops", r.enlargement.crops},       {"of_drawn", r.enlargement.of_drawn}};
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
