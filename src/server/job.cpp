#include "server/job.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rocm_sd::server {
namespace {

using nlohmann::json;

json unix_time(JobTime time) {
  if (time == JobTime{}) return nullptr;
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace

std::string_view to_string(JobState state) {
  switch (state) {
    case JobState::kQueued: return "queued";
    case JobState::kRunning: return "running";
    case JobState::kCompleted: return "completed";
    case JobState::kFailed: return "failed";
    case JobState::kCancelled: return "cancelled";
  }
  return "failed";
}

double JobView::fraction() const {
  if (state == JobState::kCompleted) return 1;
  if (state == JobState::kQueued) return 0;
  const bool sampled = progress.stage == "decode";
  const bool sampling = progress.stage == "sample" && progress.total > 0;
  const double within = sampled ? 1 : sampling ? static_cast<double>(progress.step) / progress.total : 0;
  return std::clamp((progress.round + within) / std::max(1, request.rounds), 0.0, 1.0);
}

std::string job_json(const JobView& job) {
  json images = json::array();
  for (size_t i = 0; i < job.images.size(); ++i) {
    const JobImage& image = *job.images[i];
    images.push_back({{"url", "/v1/jobs/" + job.id + "/images/" + std::to_string(i)},
                      {"seed", image.seed},
                      {"width", image.width},
                      {"height", image.height},
                      {"parameters", image.parameters}});
  }
  json error = nullptr;
  if (job.state == JobState::kFailed) error = {{"type", job.error.type}, {"message", job.error.message}};
  json progress = {{"fraction", job.fraction()},  {"stage", job.progress.stage},
                   {"step", job.progress.step},   {"total", job.progress.total},
                   {"round", job.progress.round}, {"rounds", job.request.rounds},
                   {"seconds", job.seconds}};
  const json body = {{"id", job.id},
                     {"state", to_string(job.state)},
                     {"position", job.position},
                     {"model", job.request.model},
                     {"device", job.device},
                     {"created", unix_time(job.created)},
                     {"started", unix_time(job.started)},
                     {"finished", unix_time(job.finished)},
                     {"progress", progress},
                     {"images", images},
                     {"error", error},
                     {"warnings", job.warnings}};
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace rocm_sd::server
