// What a store remembers, and how long: jobs of the journal, results, the names of those that were dropped.
#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"
#include "server/job_store.hpp"

namespace rocm_sd::server {
namespace {

constexpr size_t kMaxExpired = 1024;
constexpr int kMaxRuns = 10;  // of a job that was under way each time that the server died
using Lock = std::lock_guard<std::mutex>;

}  // namespace

JobStore::JobStore(const JobLimits& limits, Journal* journal) : limits_(limits), journal_(journal) {
  if (journal_ != nullptr) restore();
}

// Those that ran are drawn again from their beginning, before the others.
void JobStore::restore() {
  for (JournalJob& kept : journal_->read()) {
    const std::string id = kept.view.id;
    Job& job = jobs_[id];
    job.view = std::move(kept.view);
    job.request = std::move(kept.request);
    if (is_final(job.view.state)) {
      for (const auto& image : job.view.images) job.bytes += image->bytes.size();
      counts_.result_bytes += job.bytes;
      finished_.push_back(id);
      continue;
    }
    const bool ran = job.view.state == JobState::kRunning;
    job.view.state = JobState::kQueued;
    job.view.started = {};
    job.view.device.clear();
    if (ran && kept.runs >= kMaxRuns) {
      job.view.error = {500, "server_died",
                        concat("the server died ", kept.runs, " times while it drew this job")};
      finish(job, JobState::kFailed);
      continue;
    }
    if (ran) note(job, [&] { journal_->wait_again(job.view); });
    queue_.push_back(id);
    ++counts_.submitted;
  }
}

// What the journal cannot take is lost with the server, not before.
void JobStore::note(const Job& job, const std::function<void()>& work) {
  if (!is_kept(job)) return;
  try {
    work();
    journal_fails_ = false;
  } catch (const std::exception& e) {
    if (!std::exchange(journal_fails_, true)) log().warn("{}", e.what());
  }
}

void JobStore::forget(const std::string& id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  counts_.result_bytes -= found->second.bytes;
  note(found->second, [&] { journal_->forget(id); });
  jobs_.erase(found);
  expired_.push_back(id);
  if (expired_.size() > kMaxExpired) expired_.pop_front();
}

bool JobStore::remove(const std::string& id) {
  const Lock lock(mutex_);
  const Job* job = find(id);
  if (job == nullptr || !is_final(job->view.state)) return false;
  std::erase(finished_, id);
  forget(id);
  return true;
}

void JobStore::expire_locked() {
  const auto oldest = std::chrono::system_clock::now() - limits_.keep_results;
  while (!finished_.empty()) {
    const Job& job = jobs_.at(finished_.front());
    // The last result stays, however large: somebody waits for it.
    const bool too_much = counts_.result_bytes > limits_.keep_bytes && finished_.size() > 1;
    if (job.view.finished > oldest && !too_much) return;
    forget(finished_.front());
    finished_.pop_front();
  }
}

void JobStore::expire() {
  const Lock lock(mutex_);
  expire_locked();
}

}  // namespace rocm_sd::server
