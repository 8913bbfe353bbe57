#include "base/fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cassert>
#include <cstdint>
#include <exception>
#include <utility>

#include "base/error.hpp"

// The sanitizers follow a thread's stack: they are told where it goes on.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ROCM_SD_FIBER_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define ROCM_SD_FIBER_TSAN 1
#endif

namespace rocm_sd {
namespace {

struct Unwound {};  // thrown by suspend() in a fiber that is destroyed

}  // namespace

struct Fiber::State {
  std::function<void()> body;
  char* memory = nullptr;  // a page that nobody may touch, then the stack
  size_t bytes = 0, guard = 0;
  ucontext_t own{}, caller{};
  bool started = false, done = false, ending = false;
  std::exception_ptr thrown;
#if defined(ROCM_SD_FIBER_ASAN)
  void* own_fake = nullptr;
  void* caller_fake = nullptr;
  const void* caller_stack = nullptr;
  size_t caller_bytes = 0;
#elif defined(ROCM_SD_FIBER_TSAN)
  void* own_fiber = __tsan_create_fiber(0);
  void* caller_fiber = nullptr;
#endif

  ~State() {
#if defined(ROCM_SD_FIBER_TSAN)
    __tsan_destroy_fiber(own_fiber);
#elif defined(ROCM_SD_FIBER_ASAN)
    // run() never returns, so its marks would stay for whatever gets these addresses next.
    if (memory) __asan_unpoison_memory_region(memory + guard, bytes - guard);
#endif
    if (memory) munmap(memory, bytes);
  }

  void enter() {
#if defined(ROCM_SD_FIBER_ASAN)
    __sanitizer_start_switch_fiber(&caller_fake, memory + guard, bytes - guard);
#elif defined(ROCM_SD_FIBER_TSAN)
    caller_fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(own_fiber, 0);
#endif
    swapcontext(&caller, &own);
#if defined(ROCM_SD_FIBER_ASAN)
    __sanitizer_finish_switch_fiber(caller_fake, nullptr, nullptr);
#endif
  }

  // last: the stack is of no further use.
  void leave([[maybe_unused]] bool last) {
#if defined(ROCM_SD_FIBER_ASAN)
    __sanitizer_start_switch_fiber(last ? nullptr : &own_fake, caller_stack, caller_bytes);
#elif defined(ROCM_SD_FIBER_TSAN)
    __tsan_switch_to_fiber(caller_fiber, 0);
#endif
    swapcontext(&own, &caller);
    arrived();
  }

  void arrived() {
#if defined(ROCM_SD_FIBER_ASAN)
    __sanitizer_finish_switch_fiber(own_fake, &caller_stack, &caller_bytes);
#endif
  }

  void run() {
    arrived();
    try {
      body();
    } catch (const Unwound&) {
    } catch (...) {
      thrown = std::current_exception();
    }
    body = nullptr;  // what it holds ends on its own stack
    done = true;
    leave(true);
  }

  // makecontext passes ints.
  static void begin(unsigned high, unsigned low) {
    reinterpret_cast<State*>((static_cast<uintptr_t>(high) << 32) | low)->run();
  }
};

Fiber::Fiber(std::function<void()> body, size_t stack_bytes) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.body = std::move(body);
  s.guard = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  s.bytes = (stack_bytes + s.guard - 1) / s.guard * s.guard + s.guard;
  void* memory =
      mmap(nullptr, s.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require<OutOfMemoryError>(memory != MAP_FAILED, "fiber: no memory for a stack of ", s.bytes, " bytes");
  s.memory = static_cast<char*>(memory);
  mprotect(s.memory, s.guard, PROT_NONE);
  getcontext(&s.own);
  s.own.uc_stack.ss_sp = s.memory + s.guard;
  s.own.uc_stack.ss_size = s.bytes - s.guard;
  s.own.uc_link = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(&s);
  makecontext(&s.own, reinterpret_cast<void (*)()>(&State::begin), 2,
              static_cast<unsigned>(uint64_t{address} >> 32), static_cast<unsigned>(address));
}

Fiber::~Fiber() {
  State& s = *state_;
  if (!s.started || s.done) return;
  s.ending = true;
  s.enter();
}

bool Fiber::done() const { return state_->done; }

void Fiber::resume() {
  State& s = *state_;
  assert(!s.done);
  s.started = true;
  s.enter();
  if (s.thrown) std::rethrow_exception(std::exchange(s.thrown, nullptr));
}

void Fiber::suspend() {
  State& s = *state_;
  s.leave(false);
  if (s.ending) throw Unwound{};
}

}  // namespace rocm_sd
