// What waits for another device, on NVIDIA.
#pragma once

#include "composable_kernels/arch/nvidia.hpp"

namespace rocm_sd {

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
