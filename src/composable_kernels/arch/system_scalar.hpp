// What waits for another device, where that is a thread of the host.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "composable_kernels/arch/scalar.hpp"

namespace rocm_sd {

// Among the workgroups of this device.
struct DeviceScope {
  static void release() { std::atomic_thread_fence(std::memory_order_release); }
  static void acquire() { std::atomic_thread_fence(std::memory_order_acquire); }
  static uint64_t load(const uint64_t* from) {
    return std::atomic_ref(*const_cast<uint64_t*>(from)).load(std::memory_order_acquire);
  }
  // Writes `wanted` if what is there is `seen`; else `seen` becomes what is.
  static bool replace(uint64_t* at, uint64_t& seen, uint64_t wanted) {
    return std::atomic_ref(*at).compare_exchange_strong(seen, wanted);
  }
};

struct SystemScope {
  static void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  static uint32_t load_acquire(const uint32_t* from) { return word(from).load(std::memory_order_acquire); }
  static void store_release(uint32_t* to, uint32_t value) {
    word(to).store(value, std::memory_order_release);
  }
  static uint32_t count_up(uint32_t* at) { return word(at).fetch_add(1); }
  static uint64_t nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
  }
  static void pause() { std::this_thread::yield(); }
  static void launch_next() {}

 private:
  static std::atomic_ref<uint32_t> word(const uint32_t* at) {
    return std::atomic_ref(*const_cast<uint32_t*>(at));
  }
};

}  // namespace rocm_sd
