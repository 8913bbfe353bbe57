// A worker's end of the socket: orders as they come, flags of the jobs that it has, and what it sends.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
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

  // Runs `work` on a thread that encodes images while the next step is computed, after what was given before;
  // waits where that thread lags behind. What it throws is for the caller to catch within it.
  void later(std::function<void()> work);
  void finish_later();  // waits for all of it

 private:
  void take(Frame frame);
  void work_off();

  const int socket_;
  std::mutex mutex_, write_mutex_;
  std::condition_variable arrived_;
  std::deque<WorkerOrder> orders_;
  std::map<std::string, std::shared_ptr<WorkerTask>> tasks_;  // that have not ended
  std::mutex later_mutex_;
  std::condition_variable later_changed_;
  std::deque<std::function<void()>> later_;  // the first one is at work
};

}  // namespace rocm_sd::server
