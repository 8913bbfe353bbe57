#include "apps/cli/interrupt.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>

namespace rocm_sd::cli {
namespace {

std::atomic<bool> asked{false};

extern "C" void on_interrupt(int signal) {
  if (asked.exchange(true)) std::_Exit(128 + signal);
  // Of the functions that print only write() may be called here; on a terminal "^C" stands in the line.
  static constexpr char kText[] = "\nstopping after this step; once more to stop now\n";
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const char* text = terminal ? kText : kText + 1;
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, text, sizeof(kText) - 1 - (terminal ? 0 : 1));
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}
bool interrupted() { return asked.load(std::memory_order_relaxed); }

}  // namespace rocm_sd::cli
