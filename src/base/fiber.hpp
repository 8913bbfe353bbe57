// Fiber: a function with a stack of its own that stops in its middle and goes on later, where a caller asks
// for it. One thread runs both, one at a time: nothing is locked.
//
//   Fiber fiber([&] { while (more()) { want(); fiber.suspend(); } });
//   while (!fiber.done()) fiber.resume();
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace rocm_sd {

class Fiber {
 public:
  // Nothing runs before the first resume(). Throws OutOfMemoryError where there is no memory for the stack,
  // of which pages count once they are touched.
  explicit Fiber(std::function<void()> body, size_t stack_bytes = size_t{8} << 20);
  // A body that has not ended is unwound: its suspend() throws what only the fiber's own end catches.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it suspends or ends. Throws what the body throws. Always on the same thread, and
  // neither within a handler of an exception.
  void resume();
  bool done() const;

  // In the body alone: back to resume(). Not within a handler of an exception.
  void suspend();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rocm_sd
