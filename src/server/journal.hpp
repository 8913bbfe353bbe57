// The journal of a server's jobs: an SQLite database from which a server that was ended, or killed, goes on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/job.hpp"

namespace rocm_sd::server {

// A job as the journal has it.
struct JournalJob {
  JobView view;                               // of a finished one with its images; kQueued or kRunning else
  std::shared_ptr<const JobRequest> request;  // null where it is finished
  int runs = 0;                               // begun, that have not ended
};

// One server at a time has it open. What a function has returned from outlives a kill of the process and, as
// far as the disk keeps its word, of the machine. Not thread-safe: JobStore's lock guards it. Every function
// throws FileError where the disk fails.
class Journal {
 public:
  // Opens or creates it, readable for its owner alone: it holds prompts and images. Throws FileError,
  // FormatError for a file that is no journal of this version, UsageError where another server has it.
  explicit Journal(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Jobs that ran first, then the queue in its order, then finished ones, oldest first. Throws FormatError
  // for rows that no server wrote.
  std::vector<JournalJob> read();

  void add(const JobView& job, const JobRequest& request, bool front);
  void begin(const JobView& job);       // it runs
  void put_back(const JobView& job);    // it waits again: its run ended with the server, not by itself
  void wait_again(const JobView& job);  // the same after a kill: the run counts
  void add_image(const std::string& id, const JobImage& image);
  void finish(const JobView& job);  // its state, error and warnings; its request goes
  void forget(const std::string& id);

 private:
  void queue_again(const std::string& id, int forgiven_runs);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rocm_sd::server
