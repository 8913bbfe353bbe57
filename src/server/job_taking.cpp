// How workers get jobs of a store: the first of the queue, and those that may join what is at work.
#include <algorithm>

#include "server/job_store.hpp"

namespace rocm_sd::server {
namespace {

constexpr size_t kLookAhead = 256;  // waiting jobs among which those are sought that may join
using Lock = std::lock_guard<std::mutex>;

}  // namespace

std::optional<Work> JobStore::take(const std::string& device) {
  const Lock lock(mutex_);
  if (queue_.empty() || !closed_.empty()) return std::nullopt;
  const std::string id = queue_.front();
  queue_.pop_front();
  return start(jobs_.at(id), device);
}

const std::string& JobStore::key_of(Job& job) const {
  if (job.alone) job.key = "";
  if (!job.key) job.key = joining_key(*job.request, joining_);
  return *job.key;
}

Work JobStore::start(Job& job, const std::string& device) {
  job.view.state = JobState::kRunning;
  job.view.device = device;
  job.view.started = std::chrono::system_clock::now();
  job.began = std::chrono::steady_clock::now();
  note(job, [&] { journal_->begin(job.view); });
  tell(job, "running");
  return Work{job.view.id, job.request, key_of(job)};
}

std::vector<Work> JobStore::take_joining(const std::string& device, const std::string& key, int images) {
  const Lock lock(mutex_);
  std::vector<Work> out;
  if (!closed_.empty()) return out;
  for (size_t i = 0; i < std::min(queue_.size(), kLookAhead) && images > 0 && queue_.size() > free_.size();) {
    Job& job = jobs_.at(queue_[i]);
    if (key_of(job) == key && job.request->batch <= images) {
      images -= job.request->batch;
      for (size_t before = 0; before < i; ++before) ++jobs_.at(queue_[before]).overtaken;
      queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
      out.push_back(start(job, device));
      continue;
    }
    if (job.overtaken >= limits_.overtaken) break;  // nobody passes it any more
    ++i;
  }
  return out;
}

void JobStore::set_free(const void* worker, bool is_free) {
  const Lock lock(mutex_);
  if (is_free)
    free_.insert(worker);
  else
    free_.erase(worker);
}

void JobStore::separate(const std::vector<std::string>& ids) {
  {
    const Lock lock(mutex_);
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      Job* job = find(*id);
      if (job == nullptr || job->view.state != JobState::kRunning) continue;
      job->alone = true;
      job->view.state = JobState::kQueued;
      job->view.progress = {};
      for (const auto& image : job->view.images) counts_.result_bytes -= image->bytes.size();
      job->view.images.clear();
      job->bytes = 0;
      note(*job, [&] { journal_->put_back(job->view); });
      queue_.push_front(*id);
      tell(*job, "queued");
    }
  }
  if (wake_) wake_();
}

}  // namespace rocm_sd::server
