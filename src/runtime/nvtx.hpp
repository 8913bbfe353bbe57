// NVTX 3 without its header: a profiler names its library in NVTX_INJECTION64_PATH, and that library is
// handed a table of places into which it writes the functions that it wants called.
#pragma once

namespace rocm_sd {

struct RangeCalls {
  int (*push)(const char* name) = nullptr;
  int (*pop)() = nullptr;
};

// The push and pop of the profiler that this process was started under; null functions where there is none.
// Connected once per process.
RangeCalls nvtx_range_calls();

}  // namespace rocm_sd
