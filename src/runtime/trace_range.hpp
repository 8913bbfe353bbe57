// Ranges that AMD's and NVIDIA's profilers show: named spans of the host's time, through roctx or NVTX where
// ROCM_SD_RANGES=1 asks for them and one of the libraries is found when the program runs.
#pragma once

#include <string>

namespace rocm_sd {

// Opened when made and closed when destroyed, on the same thread; nested ranges show as nested.
class TraceRange {
 public:
  explicit TraceRange(const std::string& name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

  static bool enabled();  // asked for, and a library was found
};

}  // namespace rocm_sd
