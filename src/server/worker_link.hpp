// A worker's end of the socket: orders as they come, flags of the jobs that it has, and what it sends.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/frame.hpp"
#include "server/worker_task.hpp"

namespace rocm_sd::server {

// What the supervisor asks for: a job, or how to load models.
struct WorkerOrder {
  std::shared_ptr<WorkerTask> task;  // null: `configure` has the order
  std::string configure;             // JSON
};

class WorkerLink final : public FrameSink {
 public:
  explicit WorkerLink(int socket) : socket_(socket) {}

  // Orders are read on a thread of its own from now on, which ends with the process: a cancel must be seen
  // while the other thread draws. A socket that closes ends the process.
  void read_orders();
  // The next order; waits for one where `waits`. Nothing: none has come.
  std::optional<WorkerOrder> next(bool waits);
  void forget(const std::string& id);  // the job has ended

  void send(const nlohmann::json& head, std::string_view bytes = {}) override;

 private:
  void take(Frame frame);

  const int socket_;
  std::mutex mutex_, write_mutex_;
  std::condition_variable arrived_;
  std::deque<WorkerOrder> orders_;
  std::map<std::string, std::shared_ptr<WorkerTask>> tasks_;  // that have not ended
};

}  // namespace rocm_sd::server
