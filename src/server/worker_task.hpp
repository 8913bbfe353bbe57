// A job as the worker has it: what was asked for, how far it is, and what is told of it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd::server {

// Where frames for the supervisor go. Thread-safe.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void send(const nlohmann::json& head, std::string_view bytes = {}) = 0;
};

class WorkerTask {
 public:
  // head, bytes: of the order (worker_orders.hpp). The sink must outlive the task.
  WorkerTask(FrameSink& sink, const nlohmann::json& head, std::string bytes);
  ~WorkerTask();

  const std::string& id() const { return id_; }
  const nlohmann::json& head() const { return *head_; }
  std::string_view bytes() const { return bytes_; }
  std::string model() const;
  // What of the order is to be enlarged: nothing, its files, or what is drawn.
  bool enlarges() const;
  bool draws() const;

  // Makes request() of the order, on top of `begin`; the order's files are dropped. Throws UsageError that
  // names the option.
  void read(GenerateRequest begin);
  bool is_read() const { return is_read_; }
  // Of the round at hand: its seeds follow those of the round before.
  GenerateRequest request() const;

  // Told to the supervisor: progress, signs of life, previews. Cancelled by `cancel` or `skip`. The task must
  // live as long as they do.
  Callbacks callbacks();
  void send_image(const Picture& picture);
  void send_done();
  // Its image has come: true where another round follows.
  bool next_round();

  std::atomic<bool> cancel{false}, skip{false}, look{false};  // set by the thread that reads orders
  int round = 0;
  bool alone = false;  // is to be drawn by itself, after the others
  std::vector<std::string> warnings;

 private:
  using Clock = std::chrono::steady_clock;
  void add_previews(Callbacks& callbacks);

  FrameSink& sink_;
  const std::unique_ptr<const nlohmann::json> head_;
  std::string bytes_;
  const std::string id_;
  bool is_read_ = false;
  GenerateRequest request_;
  std::string stage_;
  Clock::time_point told_, alive_, preview_begin_, next_preview_;
};

}  // namespace rocm_sd::server
