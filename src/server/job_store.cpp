#include "server/job_store.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "server/http.hpp"

namespace rocm_sd::server {
namespace {

using Lock = std::lock_guard<std::mutex>;

}  // namespace

std::string random_id() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device device;
  std::string id;
  for (int word = 0; word < 4; ++word) {
    const uint32_t bits = device();
    for (int i = 0; i < 8; ++i) id += kDigits[bits >> (4 * i) & 15];
  }
  return id;
}

JobStore::Job* JobStore::find(const std::string& id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}
const JobStore::Job* JobStore::find(const std::string& id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

JobView JobStore::view_of(const Job& job) const {
  JobView view = job.view;
  if (view.state == JobState::kQueued) {
    const auto place = std::ranges::find(queue_, view.id);
    view.position = static_cast<size_t>(place - queue_.begin());
  }
  if (view.state == JobState::kRunning)
    view.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - job.began).count();
  return view;
}

void JobStore::tell(Job& job, const std::string& what) {
  if (job.watchers.empty()) return;
  const std::string text = job_json(view_of(job));
  const bool last = is_final(job.view.state);
  for (const auto& [key, watcher] : job.watchers) watcher(what, text, last);
  if (last) job.watchers.clear();
}

void JobStore::look(const std::string& id) {
  {
    const Lock lock(mutex_);
    Job* job = find(id);
    if (job == nullptr || is_final(job->view.state) || std::exchange(job->look_asked, true)) return;
  }
  if (wake_) wake_();
}

bool JobStore::watch_previews(const std::string& id, uint64_t key, PreviewWatcher watcher, Looks looks) {
  {
    const Lock lock(mutex_);
    Job* job = find(id);
    if (job == nullptr || is_final(job->view.state)) return false;
    job->preview_watchers[key] = std::move(watcher);
    if (looks == Looks::kMany) job->lookers.insert(key);
  }
  if (looks == Looks::kMany) look(id);
  return true;
}

bool JobStore::take_look(const std::string& id) {
  const Lock lock(mutex_);
  Job* job = find(id);
  return job != nullptr && std::exchange(job->look_asked, false);
}

void JobStore::add_preview(const std::string& id, JobPreview preview) {
  const Lock lock(mutex_);
  Job* job = find(id);
  if (job == nullptr) return;
  job->view.preview = std::make_shared<const JobPreview>(std::move(preview));
  for (const auto& [key, watcher] : job->preview_watchers) watcher(*job->view.preview);
  job->look_asked = job->look_asked || !job->lookers.empty();
}

std::string JobStore::submit(JobRequest request, const std::string& client, QueuePlace place) {
  std::string id = random_id();
  {
    const Lock lock(mutex_);
    if (!closed_.empty()) throw RequestError({503, "shutting_down", closed_, ""});
    expire_locked();
    const auto of_client = std::ranges::count_if(
        queue_, [&](const std::string& queued) { return jobs_.at(queued).view.client == client; });
    if (queue_.size() >= limits_.queued || static_cast<size_t>(of_client) >= limits_.queued_per_client) {
      ++counts_.rejected;
      const bool full = queue_.size() >= limits_.queued;
      throw RequestError({429, "queue_full",
                          full ? concat("the queue is full: ", queue_.size(), " jobs wait")
                               : concat("this client has ", of_client, " jobs waiting, which is its share"),
                          ""});
    }
    Job& job = jobs_[id];
    job.view.id = id;
    job.view.client = client;
    job.view.created = std::chrono::system_clock::now();
    job.request = std::make_shared<const JobRequest>(std::move(request));
    job.view.request = *job.request;
    for (Attachment& file : job.view.request.files) std::string().swap(file.bytes);
    try {
      if (is_kept(job)) journal_->add(job.view, *job.request, place == QueuePlace::kFront);
    } catch (const std::exception& e) {
      jobs_.erase(id);
      log().warn("{}", e.what());
      throw RequestError({503, "journal_failed", "the journal takes no jobs", ""});
    }
    if (place == QueuePlace::kFront)
      queue_.push_front(id);
    else
      queue_.push_back(id);
    ++counts_.submitted;
  }
  if (wake_) wake_();
  return id;
}

std::optional<JobState> JobStore::cancel(const std::string& id) {
  {
    const Lock lock(mutex_);
    Job* job = find(id);
    if (job == nullptr) return std::nullopt;
    if (job->view.state == JobState::kQueued) {
      std::erase(queue_, id);
      finish(*job, JobState::kCancelled);
    } else if (job->view.state == JobState::kRunning) {
      job->cancel_asked = true;
    }
    if (is_final(job->view.state)) return job->view.state;
  }
  if (wake_) wake_();
  return JobState::kRunning;
}

void JobStore::skip_running() {
  {
    const Lock lock(mutex_);
    for (auto& [id, job] : jobs_) job.skip_asked = job.skip_asked || job.view.state == JobState::kRunning;
  }
  if (wake_) wake_();
}

void JobStore::cancel_running() {
  for (const std::string& id : running()) cancel(id);
}

std::vector<std::string> JobStore::running() const {
  const Lock lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [id, job] : jobs_)
    if (job.view.state == JobState::kRunning) out.push_back(id);
  return out;
}

std::optional<JobView> JobStore::view(const std::string& id) const {
  const Lock lock(mutex_);
  const Job* job = find(id);
  if (job == nullptr) return std::nullopt;
  return view_of(*job);
}

bool JobStore::was_known(const std::string& id) const {
  const Lock lock(mutex_);
  return std::ranges::find(expired_, id) != expired_.end();
}

std::vector<JobView> JobStore::list() const {
  const Lock lock(mutex_);
  std::vector<JobView> out;
  for (const auto& [id, job] : jobs_) out.push_back(view_of(job));
  std::ranges::sort(out, [](const JobView& a, const JobView& b) { return a.created > b.created; });
  return out;
}

JobCounts JobStore::counts() const {
  const Lock lock(mutex_);
  JobCounts counts = counts_;
  counts.queued = queue_.size();
  counts.running = 0;
  for (const auto& [id, job] : jobs_) counts.running += job.view.state == JobState::kRunning ? 1 : 0;
  return counts;
}

bool JobStore::idle() const {
  const JobCounts now = counts();
  const Lock lock(mutex_);
  return now.running == 0 && (now.queued == 0 || !closed_.empty());
}

void JobStore::stop_running() {
  for (const std::string& id : running()) {
    {
      const Lock lock(mutex_);
      if (Job* job = find(id)) job->stop_asked = true;
    }
    if (wake_) wake_();
  }
}

bool JobStore::watch(const std::string& id, uint64_t key, Watcher watcher) {
  const Lock lock(mutex_);
  Job* job = find(id);
  if (job == nullptr) return false;
  const bool last = is_final(job->view.state);
  watcher(std::string(to_string(job->view.state)), job_json(view_of(*job)), last);
  if (!last) job->watchers[key] = std::move(watcher);
  return true;
}

void JobStore::unwatch(const std::string& id, uint64_t key) {
  const Lock lock(mutex_);
  Job* job = find(id);
  if (job == nullptr) return;
  job->watchers.erase(key);
  job->preview_watchers.erase(key);
  job->lookers.erase(key);
}

bool JobStore::cancel_asked(const std::string& id) const {
  const Lock lock(mutex_);
  const Job* job = find(id);
  return job != nullptr && (job->cancel_asked || job->stop_asked);
}

bool JobStore::take_skip(const std::string& id) {
  const Lock lock(mutex_);
  Job* job = find(id);
  return job != nullptr && std::exchange(job->skip_asked, false);
}

void JobStore::progress(const std::string& id, JobProgress progress) {
  const Lock lock(mutex_);
  if (Job* job = find(id)) {
    job->view.progress = std::move(progress);
    tell(*job, "progress");
  }
}

void JobStore::add_image(const std::string& id, JobImage image) {
  const Lock lock(mutex_);
  Job* job = find(id);
  if (job == nullptr) return;
  job->bytes += image.bytes.size();
  counts_.result_bytes += image.bytes.size();
  ++counts_.images;
  note(*job, [&] { journal_->add_image(id, image); });
  job->view.images.push_back(std::make_shared<const JobImage>(std::move(image)));
  tell(*job, "image");
}

// Its request is of no further use: attachments are large.
void JobStore::finish(Job& job, JobState state) {
  job.view.seconds = job.view.state == JobState::kRunning
                         ? std::chrono::duration<double>(std::chrono::steady_clock::now() - job.began).count()
                         : 0;
  job.view.state = state;
  job.view.finished = std::chrono::system_clock::now();
  job.request.reset();
  job.view.preview.reset();
  job.preview_watchers.clear();
  finished_.push_back(job.view.id);
  if (state == JobState::kCompleted) {
    ++counts_.completed;
    counts_.run_seconds += job.view.seconds;
  }
  if (state == JobState::kFailed) ++counts_.failed;
  if (state == JobState::kCancelled) ++counts_.cancelled;
  note(job, [&] { journal_->finish(job.view); });
  tell(job, std::string(to_string(state)));
}

void JobStore::complete(const std::string& id, std::vector<std::string> warnings) {
  const Lock lock(mutex_);
  Job* job = find(id);
  if (job == nullptr) return;
  job->view.warnings = std::move(warnings);
  finish(*job, JobState::kCompleted);
  expire_locked();
}

void JobStore::fail(const std::string& id, JobError error) {
  const Lock lock(mutex_);
  Job* job = find(id);
  if (job == nullptr) return;
  job->view.error = std::move(error);
  finish(*job, JobState::kFailed);
}

void JobStore::cancelled(const std::string& id) {
  const Lock lock(mutex_);
  Job* job = find(id);
  if (job == nullptr) return;
  // Not its client's wish: the next server goes on with it.
  if (is_kept(*job) && !closed_.empty() && !job->cancel_asked) {
    note(*job, [&] { journal_->put_back(job->view); });
    job->view.state = JobState::kQueued;
    queue_.push_front(id);
    return;
  }
  finish(*job, JobState::kCancelled);
}

void JobStore::close(const std::string& reason) {
  const Lock lock(mutex_);
  closed_ = reason;
  for (const std::string& id : std::exchange(queue_, {})) {
    Job& job = jobs_.at(id);
    if (is_kept(job))
      queue_.push_back(id);
    else
      finish(job, JobState::kCancelled);
  }
}

}  // namespace rocm_sd::server
