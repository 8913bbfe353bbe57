// Profiler: one record per launch, printed as a table or written as a Chrome trace (chrome://tracing,
// Perfetto).
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace rocm_sd {

// What a launch is, for profiles and work counts.
struct OpInfo {
  const char* op = "";  // "conv2d": static storage
  std::string detail;   // implementation and shapes: "onednn [2,64,64,320]x[320,3,3,320]"
  double flops = 0;     // 2 per multiply-add
  double bytes = 0;     // inputs read once, outputs written once
};

class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  Profiler() : start_(Clock::now()) {}
  void record(const OpInfo& info, Clock::time_point begin, Clock::time_point end);
  // A span around many launches ("text encode", "step 3"); nested spans show as nested in the trace.
  void record_span(const std::string& name, Clock::time_point begin, Clock::time_point end);

  // Per op: calls, time, share, GFLOP/s, GB/s; sorted by time. A second table lists the slowest problems.
  std::string table() const;
  // Throws FileError if the file cannot be written.
  void write_chrome_trace(const std::string& path) const;

 private:
  struct Event {
    OpInfo info;
    bool span = false;
    double begin_us = 0, duration_us = 0;
  };
  void add(Event event, Clock::time_point begin, Clock::time_point end);

  Clock::time_point start_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace rocm_sd
