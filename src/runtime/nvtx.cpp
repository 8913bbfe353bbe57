// The protocol is that of the NVTX 3 header (nvtxDetail/nvtxTypes.h): two tables by number, of which one
// gives the functions of a module; only the ranges of module 1 ("core") are offered.
#include "runtime/nvtx.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/dynamic_library.hpp"
#include "base/log.hpp"

namespace rocm_sd {
namespace {

using AnyFunction = void (*)();

constexpr uint32_t kCallbackTable = 1, kVersionTable = 3;              // NVTX_ETID_*
constexpr uint32_t kCoreModule = 1;                                    // NVTX_CB_MODULE_CORE
constexpr size_t kPushIndex = 9, kPopIndex = 11, kCoreFunctions = 16;  // NVTX_CBID_CORE_*

AnyFunction core[kCoreFunctions];          // what the profiler wrote
AnyFunction* core_places[kCoreFunctions];  // where it may write

int function_table(uint32_t module, AnyFunction*** places, unsigned* count) {
  if (module != kCoreModule) return 0;
  for (size_t i = 0; i < kCoreFunctions; ++i) core_places[i] = &core[i];
  if (places) *places = core_places;
  if (count) *count = kCoreFunctions;
  return 1;
}
void note_version(uint32_t) {}

struct CallbackTable {
  size_t bytes;
  int (*function_table)(uint32_t module, AnyFunction*** places, unsigned* count);
};
struct VersionTable {
  size_t bytes;
  uint32_t version, reserved;
  void (*note_version)(uint32_t);
};

const void* export_table(uint32_t id) {
  static const CallbackTable callbacks{sizeof(CallbackTable), function_table};
  static const VersionTable version{sizeof(VersionTable), 3, 0, note_version};
  if (id == kCallbackTable) return &callbacks;
  return id == kVersionTable ? static_cast<const void*>(&version) : nullptr;
}

RangeCalls connect() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (!path || !*path) return {};
  const DynamicLibrary profiler{path};
  using Initialize = int (*)(const void* (*export_table)(uint32_t));
  const auto initialize = reinterpret_cast<Initialize>(profiler.symbol("InitializeInjectionNvtx2"));
  if (!initialize || initialize(export_table) == 0) {
    log().warn("NVTX_INJECTION64_PATH: {}: no NVTX ranges ({})", path,
               profiler ? "the library does not take them" : profiler.problem());
    return {};
  }
  return {reinterpret_cast<int (*)(const char*)>(core[kPushIndex]),
          reinterpret_cast<int (*)()>(core[kPopIndex])};
}

}  // namespace

RangeCalls nvtx_range_calls() {
  static const RangeCalls calls = connect();
  return calls;
}

}  // namespace rocm_sd
