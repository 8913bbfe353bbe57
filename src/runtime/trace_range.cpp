#include "runtime/trace_range.hpp"

#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/dynamic_library.hpp"
#include "base/log.hpp"
#include "runtime/nvtx.hpp"

namespace rocm_sd {
namespace {

// Every library that is there: a machine may have both.
std::vector<RangeCalls> find_libraries() {
  const char* asked = std::getenv("ROCM_SD_RANGES");
  if (!asked || std::string_view(asked) != "1") return {};
  const DynamicLibrary roctx = DynamicLibrary::chosen_by(
      "ROCM_SD_ROCTX_LIBRARY", {"librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so.0",
                                "libroctx64.so.4", "/opt/rocm/lib/libroctx64.so"});
  const DynamicLibrary nvtx{"libnvToolsExt.so.1"};  // NVTX 2, until CUDA 12; later there is only the protocol
  std::vector<RangeCalls> found;
  const auto add = [&](const DynamicLibrary& library, const char* push, const char* pop) {
    const RangeCalls calls{reinterpret_cast<int (*)(const char*)>(library.symbol(push)),
                           reinterpret_cast<int (*)()>(library.symbol(pop))};
    if (calls.push && calls.pop) found.push_back(calls);
  };
  add(roctx, "roctxRangePushA", "roctxRangePop");
  if (const RangeCalls nvtx3 = nvtx_range_calls(); nvtx3.push && nvtx3.pop)
    found.push_back(nvtx3);
  else
    add(nvtx, "nvtxRangePushA", "nvtxRangePop");
  if (found.empty())
    log().warn("ROCM_SD_RANGES=1: neither roctx ({}) nor NVTX ({}) was found", roctx.problem(),
               nvtx.problem());
  return found;
}

const std::vector<RangeCalls>& libraries() {
  static const std::vector<RangeCalls> found = find_libraries();
  return found;
}

}  // namespace

TraceRange::TraceRange(const std::string& name) {
  for (const RangeCalls& calls : libraries()) calls.push(name.c_str());
}
TraceRange::~TraceRange() {
  for (const RangeCalls& calls : libraries()) calls.pop();
}
bool TraceRange::enabled() { return !libraries().empty(); }

}  // namespace rocm_sd
