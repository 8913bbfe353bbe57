// What waits for another device, on AMD.
#pragma once

#include "composable_kernels/arch/amd.hpp"

namespace rocm_sd {

// Among the workgroups of this device.
struct DeviceScope {
  // What this lane wrote before is there for those that acquire after.
  static ROCM_SD_DEVICE void release() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
  static ROCM_SD_DEVICE void acquire() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
  static ROCM_SD_DEVICE uint64_t load(const uint64_t* from) {
    return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
  }
  // Writes `wanted` if what is there is `seen`; else `seen` becomes what is.
  static ROCM_SD_DEVICE bool replace(uint64_t* at, uint64_t& seen, uint64_t wanted) {
    return __hip_atomic_compare_exchange_strong(at, &seen, wanted, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE,
                                                __HIP_MEMORY_SCOPE_AGENT);
  }
};

struct SystemScope {
  // What this lane wrote before is there for everybody who sees what it writes after.
  static ROCM_SD_DEVICE void fence() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, ""); }
  static ROCM_SD_DEVICE uint32_t load_acquire(const uint32_t* from) {
    return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
  }
  static ROCM_SD_DEVICE void store_release(uint32_t* to, uint32_t value) {
    __hip_atomic_store(to, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
  }
  // What was there before it became one more: among the workgroups of this device.
  static ROCM_SD_DEVICE uint32_t count_up(uint32_t* at) {
    return __hip_atomic_fetch_add(at, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
  }
  static ROCM_SD_DEVICE uint64_t nanoseconds() { return __builtin_readsteadycounter() * 10; }  // of 100 MHz
  static ROCM_SD_DEVICE void pause() { __builtin_amdgcn_s_sleep(4); }  // some 256 cycles
  static ROCM_SD_DEVICE void launch_next() {}
};

}  // namespace rocm_sd
