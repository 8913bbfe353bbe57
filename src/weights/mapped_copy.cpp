#include "weights/mapped_copy.hpp"

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>

namespace rocm_sd {
namespace {

// A signal's handler is the process's: this is the state that cannot be anything but global.
// Volatile: to the compiler a store that only a signal handler reads, between two others, is dead.
thread_local sigjmp_buf* volatile active_jump = nullptr;
struct sigaction previous_action;

void on_sigbus(int signal, siginfo_t* info, void* context) {
  if (active_jump != nullptr) siglongjmp(*active_jump, 1);
  if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction != nullptr)
    return previous_action.sa_sigaction(signal, info, context);
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN)
    return previous_action.sa_handler(signal);
  sigaction(SIGBUS, &previous_action, nullptr);  // returning faults again, now with the old disposition
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGBUS, &action, &previous_action);
  });
}

}  // namespace

bool mapped_copy(void* dst, const void* src, size_t bytes) {
  install_handler();
  sigjmp_buf jump;
  if (sigsetjmp(jump, 1) != 0) {
    active_jump = nullptr;
    return false;
  }
  active_jump = &jump;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // no byte is copied outside the guard
  std::memcpy(dst, src, bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  active_jump = nullptr;
  return true;
}

}  // namespace rocm_sd
