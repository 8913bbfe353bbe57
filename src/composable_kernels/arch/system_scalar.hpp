// What waits for another device, where that is a thread of the host.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "composable_kernels/arch/scalar.hpp"

namespace rocm_sd {

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
