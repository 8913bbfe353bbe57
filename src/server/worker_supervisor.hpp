// One device's worker and the thread that looks after it: gives it jobs, takes its results, ends and restarts
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "server/admission.hpp"
#include "server/catalog.hpp"
#include "server/job_store.hpp"
#include "server/options.hpp"

namespace rocm_sd::server {

struct WorkerStatus {
  std::string device;                          // as asked for
  std::string device_name;                     // as the engine describes it, once a model is loaded
  std::string state = "starting";              // starting, loading, idle, busy, waiting (to be restarted)
  std::string model;                           // that is loaded
  std::string error;                           // of the last failure
  uint64_t memory_total = 0, memory_free = 0;  // of the device, when the model had been loaded; 0 before
  StepMemory memory;                           // of the model that was loaded last
  int pid = 0, restarts = 0;
  uint64_t steps = 0;
  double step_seconds = 0;  // of those steps
};

class WorkerSupervisor {
 public:
  // All must outlive it.
  WorkerSupervisor(std::string device, const ServerOptions& options, Catalog& catalog, JobStore& jobs);
  ~WorkerSupervisor();  // end()

  // Workers wake each other through the store: all are made before the first one starts, and all have ended
  // before the first one goes.
  void start();
  void end();  // ends the worker, and waits for it

  void wake();  // something in the store has changed
  WorkerStatus status() const;
  bool ready() const;  // has a model in memory

 private:
  class Loop;
  void change(const std::function<void(WorkerStatus&)>& how);

  const std::string device_;
  const ServerOptions& options_;
  Catalog& catalog_;
  JobStore& jobs_;
  int wake_descriptor_ = -1;
  mutable std::mutex mutex_;
  WorkerStatus status_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace rocm_sd::server
