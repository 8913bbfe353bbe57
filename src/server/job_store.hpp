// The jobs of a server: the bounded queue, those at work, and results for a while. Thread-safe.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "server/job.hpp"
#include "server/job_joining.hpp"
#include "server/journal.hpp"

namespace rocm_sd::server {

struct JobLimits {
  size_t queued = 64, queued_per_client = 8;
  std::chrono::seconds keep_results{600};
  uint64_t keep_bytes = 256u << 20;  // of results; the oldest go first
  int overtaken = 8;  // that may pass a waiting job because they join others at work, and it cannot
};

// What a worker gets: the whole request.
struct Work {
  std::string id;
  std::shared_ptr<const JobRequest> request;
  std::string key;  // joining_key(); empty: it is drawn alone
};

struct JobCounts {
  size_t queued = 0, running = 0;
  uint64_t submitted = 0, completed = 0, failed = 0, cancelled = 0, rejected = 0, images = 0;
  double run_seconds = 0;  // of completed jobs
  uint64_t result_bytes = 0;
};

enum class QueuePlace { kBack, kFront };

class JobStore {
 public:
  // Called with the store locked, after each change of the job: it must return at once and may not call the
  // store. `what`: "progress", "image", or the new state.
  using Watcher = std::function<void(const std::string& what, const std::string& job_json, bool is_final)>;

  // Called under the same conditions with each preview.
  using PreviewWatcher = std::function<void(const JobPreview& preview)>;

  // journal: may be null; else jobs that nobody awaits are in it, too, and those that it has go on. It must
  // outlive the store. Throws what Journal::read() does.
  explicit JobStore(const JobLimits& limits, Journal* journal = nullptr);

  // The new job's id. Throws RequestError: 429 where the queue or the client's share of it is full, 503
  // after close().
  std::string submit(JobRequest request, const std::string& client, QueuePlace place = QueuePlace::kBack);
  // A queued job is cancelled at once; a running one when its worker has stopped. Nothing: no such job.
  std::optional<JobState> cancel(const std::string& id);
  // The running jobs' worker is to go on with the next round.
  void skip_running();
  std::vector<std::string> running() const;

  std::optional<JobView> view(const std::string& id) const;
  bool was_known(const std::string& id) const;  // existed, and has expired
  std::vector<JobView> list() const;            // newest first, without images
  bool remove(const std::string& id);           // forgets a finished job; false where there is none
  JobCounts counts() const;

  uint64_t new_key() { return next_key_++; }  // of a watcher
  // False: no such job. The watcher is told the present state first, and lives until the job's last event.
  bool watch(const std::string& id, uint64_t key, Watcher watcher);
  void unwatch(const std::string& id, uint64_t key);  // both kinds
  // Somebody would like to see the picture: one preview is made of a running job.
  void look(const std::string& id);
  // The same again and again, until the job's end. With Looks::kNone the watcher sees what others look at.
  enum class Looks { kMany, kNone };
  bool watch_previews(const std::string& id, uint64_t key, PreviewWatcher watcher,
                      Looks looks = Looks::kMany);

  // For workers.
  std::optional<Work> take(const std::string& device);
  // Jobs that may join those at work with this key (job_joining.hpp), of at most `images` images, from the
  // head of the queue on. They pass others at most JobLimits::overtaken times; jobs that a free worker will
  // take are left to it.
  std::vector<Work> take_joining(const std::string& device, const std::string& key, int images);
  // Whether this worker waits for a job.
  void set_free(const void* worker, bool is_free);
  // They were at work when their worker ended: each is to be drawn alone, before the others that wait.
  void separate(const std::vector<std::string>& ids);
  bool cancel_asked(const std::string& id) const;
  bool take_skip(const std::string& id);  // whether skip_running() was called since the last look
  bool take_look(const std::string& id);  // the same of look()
  void progress(const std::string& id, JobProgress progress);
  void add_preview(const std::string& id, JobPreview preview);
  void add_image(const std::string& id, JobImage image);
  void complete(const std::string& id, std::vector<std::string> warnings);
  void fail(const std::string& id, JobError error);
  void cancelled(const std::string& id);

  void on_work(std::function<void()> wake) { wake_ = std::move(wake); }  // before the first submit
  void set_rules(JoiningRules rules) { joining_ = std::move(rules); }    // before the first take
  void expire();  // forgets what is older than the limits
  // Takes no more jobs and gives none out. Queued ones are cancelled, or wait in the journal.
  void close(const std::string& reason);
  void cancel_running();
  void stop_running();  // the server ends: cancelled, or put back into the journal
  bool idle() const;    // none runs, and none is going to

 private:
  struct Job {
    JobView view;
    std::shared_ptr<const JobRequest> request;
    std::chrono::steady_clock::time_point began;
    bool alone = false;  // was at work with others when their worker ended
    int overtaken = 0;
    std::optional<std::string> key;  // joining_key(), once somebody has asked
    bool cancel_asked = false, stop_asked = false, skip_asked = false, look_asked = false;
    uint64_t bytes = 0;
    std::map<uint64_t, Watcher> watchers;
    std::map<uint64_t, PreviewWatcher> preview_watchers;
    std::set<uint64_t> lookers;  // those of them that ask for more
  };
  void restore();
  Work start(Job& job, const std::string& device);
  const std::string& key_of(Job& job) const;
  bool is_kept(const Job& job) const { return journal_ != nullptr && !job.view.request.awaited; }
  void note(const Job& job, const std::function<void()>& work);  // to the journal, if it is kept there
  JobView view_of(const Job& job) const;
  void tell(Job& job, const std::string& what);
  void finish(Job& job, JobState state);
  Job* find(const std::string& id);
  const Job* find(const std::string& id) const;
  void forget(const std::string& id);
  void expire_locked();

  const JobLimits limits_;
  Journal* const journal_;
  bool journal_fails_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, Job> jobs_;
  std::deque<std::string> queue_, finished_;  // ids; finished ones oldest first
  std::deque<std::string> expired_;           // ids, for 410 in place of 404
  JobCounts counts_;
  std::atomic<uint64_t> next_key_{1};
  std::string closed_;
  std::function<void()> wake_;
  JoiningRules joining_;
  std::set<const void*> free_;  // workers that wait
};

// 128 random bits in hexadecimal.
std::string random_id();

}  // namespace rocm_sd::server
