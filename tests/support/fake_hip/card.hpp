// The stand-in's card: what is alive, what was complained of, and the queues of its streams.
#pragma once

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../../../tools/pack/pack_kernels/code_object.hpp"

// What hipError_t and the launch list hold; written from HIP's documentation, not shared with hip.cpp.
namespace fake_hip {

inline constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3,
                     kInvalidDevice = 101, kInvalidImage = 200, kInvalidHandle = 400, kNotFound = 500,
                     kNotReady = 600, kCaptureUnsupported = 900, kCaptureInvalidated = 901, kUnknown = 999;

using Clock = std::chrono::steady_clock;

// One record of an event: what waits for the event waits for the record that came last before it.
struct Record {
  bool done = false;
  struct Stream* captured_by = nullptr;
};
struct Event {
  bool recorded = false, done = false;
  Clock::time_point time;
  std::shared_ptr<Record> last;
};
struct Module {
  std::vector<rocm_sd::CodeObjectKernel> kernels;
};
struct Function {
  Module* module;
  rocm_sd::CodeObjectKernel kernel;
};
struct Operation {
  std::function<void()> run;
  Event* event = nullptr;  // for a marker
  std::shared_ptr<Record> sets = nullptr, needs = nullptr;
  Stream* stream = nullptr;  // in a recording: whose work it is
};
using Recording = std::vector<Operation>;
struct Stream {
  std::deque<Operation> queue;
  bool capturing = false, invalidated = false, eager = false;
  Stream* joined = nullptr;  // whose capture it has joined
  Recording recording;
};
struct Graph {
  Recording operations;
};

// All handles and blocks, under one lock: clarity before speed.
struct Card {
  std::recursive_mutex mutex;
  std::string arch = "gfx1100", complaints;
  uint64_t memory = uint64_t{1} << 30, used = 0;
  bool initialised = false;
  std::map<char*, size_t> blocks, pinned, registered;
  std::set<void*> streams, events, modules, graphs, execs;
  std::map<void*, Function*> functions;
  std::map<std::string, size_t> calls;
  std::map<std::string, int> failing;
  bool eager = false;  // streams after the first do their work as soon as they may
};
inline Card& card() {
  static auto& instance = *new Card;  // outlives every user
  return instance;
}
inline thread_local bool device_set = false;

inline void complain(const std::string& text) { card().complaints += text + "\n"; }

// Counts the call, and gives the status that a test asked for.
inline int enter(const char* function, bool needs_device = true) {
  ++card().calls[function];
  if (!card().initialised && std::strcmp(function, "hipInit") != 0) {
    complain(std::string(function) + " before hipInit");
    return kNotInitialized;
  }
  if (needs_device && !device_set) complain(std::string(function) + ": no hipSetDevice on this thread");
  const auto failing = card().failing.find(function);
  return failing == card().failing.end() ? kSuccess : failing->second;
}

#define ENTER(...)                          \
  const std::lock_guard lock(card().mutex); \
  if (const int forced = enter(__func__ __VA_OPT__(, ) __VA_ARGS__); forced != kSuccess) return forced

inline int invalid(const char* function, const char* what, int status = kInvalidValue) {
  complain(std::string(function) + ": " + what);
  return status;
}

// True where [data, data + bytes) lies in one live block.
inline bool inside(const std::map<char*, size_t>& blocks, const void* data, size_t bytes) {
  auto* at = const_cast<char*>(static_cast<const char*>(data));
  auto next = blocks.upper_bound(at);
  if (next == blocks.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return static_cast<size_t>(at - begin) <= size && bytes <= size - static_cast<size_t>(at - begin);
}
inline bool on_device(const void* data, size_t bytes) { return inside(card().blocks, data, bytes); }

inline bool blocked(const Stream& stream) {
  return !stream.queue.empty() && stream.queue.front().needs && !stream.queue.front().needs->done;
}
inline void run_eager();
// What the next operation waits for is done first, by whichever stream has it.
inline void run_next(Stream& stream) {
  for (void* other : card().streams)
    while (blocked(stream) && other != &stream && !static_cast<Stream*>(other)->queue.empty())
      run_next(*static_cast<Stream*>(other));
  if (stream.queue.empty()) return;  // done meanwhile
  if (blocked(stream)) complain("a stream waits for a record that nobody makes");
  Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (operation.run) operation.run();
  if (operation.sets) operation.sets->done = true;
  if (operation.event) {
    operation.event->done = true;
    operation.event->time = Clock::now();
  }
  if (operation.sets) run_eager();
}
inline void run_eager() {
  for (void* other : card().streams) {
    auto& stream = *static_cast<Stream*>(other);
    while (stream.eager && !stream.queue.empty() && !blocked(stream)) run_next(stream);
  }
}
inline void run_all(Stream& stream) {
  while (!stream.queue.empty()) run_next(stream);
}
inline void run_everything() {
  for (void* stream : card().streams) run_all(*static_cast<Stream*>(stream));
}

inline int enqueue(Stream* stream, const char* function, Operation operation) {
  if (!card().streams.contains(stream)) return invalid(function, "no such stream", kInvalidHandle);
  Stream* const capture = stream->capturing ? stream : stream->joined;
  if (capture) {
    operation.stream = stream;
    capture->recording.push_back(std::move(operation));
  } else {
    stream->queue.push_back(std::move(operation));
    run_eager();
  }
  return kSuccess;
}

// Calls that a capture on this thread forbids.
inline int refuse_capture(const char* function) {
  for (void* handle : card().streams) {
    auto* stream = static_cast<Stream*>(handle);
    if (!stream->capturing) continue;
    stream->invalidated = true;
    return invalid(function, "while a stream is capturing", kCaptureUnsupported);
  }
  return kSuccess;
}

template <class T>
int destroy(std::set<void*>& live, T* handle, const char* function) {
  if (live.erase(handle) == 0) return invalid(function, "no such handle, or destroyed twice", kInvalidHandle);
  delete handle;
  return kSuccess;
}

}  // namespace fake_hip
