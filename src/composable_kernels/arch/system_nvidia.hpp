// What waits for another device, on NVIDIA.
#pragma once

#include "composable_kernels/arch/nvidia.hpp"

namespace rocm_sd {

// Among the workgroups of this device.
struct DeviceScope {
  // What this lane wrote before is there for those that acquire after.
  static ROCM_SD_DEVICE void release() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
  static ROCM_SD_DEVICE void acquire() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
  static ROCM_SD_DEVICE uint64_t load(const uint64_t* from) {
    uint64_t value;
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  // Writes `wanted` if what is there is `seen`; else `seen` becomes what is.
  static ROCM_SD_DEVICE bool replace(uint64_t* at, uint64_t& seen, uint64_t wanted) {
    const uint64_t expected = seen;
    asm volatile("atom.cas.acq_rel.gpu.b64 %0, [%1], %2, %3;"
                 : "=l"(seen)
                 : "l"(at), "l"(expected), "l"(wanted)
                 : "memory");
    return seen == expected;
  }
};

struct SystemScope {
  // What this lane wrote before is there for everybody who sees what it writes after.
  static ROCM_SD_DEVICE void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
  static ROCM_SD_DEVICE uint32_t load_acquire(const uint32_t* from) {
    uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }
  static ROCM_SD_DEVICE void store_release(uint32_t* to, uint32_t value) {
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
  }
  // What was there before it became one more: among the workgroups of this device.
  static ROCM_SD_DEVICE uint32_t count_up(uint32_t* at) {
    uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], 1;" : "=r"(before) : "l"(at) : "memory");
    return before;
  }
  static ROCM_SD_DEVICE uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  static ROCM_SD_DEVICE void pause() { asm volatile("nanosleep.u32 40;"); }
  // As pdl_launch_next(): the next kernel may take the room that this one leaves.
  static ROCM_SD_DEVICE void launch_next() { Nvidia::pdl_launch_next(); }
};

}  // namespace rocm_sd
