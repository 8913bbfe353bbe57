#include "fake_hip.hpp"

#include <algorithm>
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

#include "../../../src/runtime/probe.hpp"
#include "../../../tools/pack_kernels/code_object.hpp"

// What hipError_t and the launch list hold; written from HIP's documentation, not shared with hip.cpp.
namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kInvalidDevice = 101,
              kInvalidImage = 200, kInvalidHandle = 400, kNotFound = 500, kNotReady = 600,
              kCaptureUnsupported = 900, kCaptureInvalidated = 901, kUnknown = 999;

using Clock = std::chrono::steady_clock;

struct Event {
  bool recorded = false, done = false;
  Clock::time_point time;
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
};
using Recording = std::vector<Operation>;
struct Stream {
  std::deque<Operation> queue;
  bool capturing = false, invalidated = false;
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
  std::map<char*, size_t> blocks, pinned;
  std::set<void*> streams, events, modules, graphs, execs;
  std::map<void*, Function*> functions;
  std::map<std::string, size_t> calls;
  std::map<std::string, int> failing;
};
Card& card() {
  static auto& instance = *new Card;  // outlives every user
  return instance;
}
thread_local bool device_set = false;

void complain(const std::string& text) { card().complaints += text + "\n"; }

// Counts the call, and gives the status that a test asked for.
int enter(const char* function, bool needs_device = true) {
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

int invalid(const char* function, const char* what, int status = kInvalidValue) {
  complain(std::string(function) + ": " + what);
  return status;
}

// True where [data, data + bytes) lies in one live block.
bool inside(const std::map<char*, size_t>& blocks, const void* data, size_t bytes) {
  auto* at = const_cast<char*>(static_cast<const char*>(data));
  auto next = blocks.upper_bound(at);
  if (next == blocks.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return static_cast<size_t>(at - begin) <= size && bytes <= size - static_cast<size_t>(at - begin);
}
bool on_device(const void* data, size_t bytes) { return inside(card().blocks, data, bytes); }

void run_next(Stream& stream) {
  Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (operation.run) operation.run();
  if (operation.event) {
    operation.event->done = true;
    operation.event->time = Clock::now();
  }
}
void run_all(Stream& stream) {
  while (!stream.queue.empty()) run_next(stream);
}
void run_everything() {
  for (void* stream : card().streams) run_all(*static_cast<Stream*>(stream));
}

int enqueue(Stream* stream, const char* function, Operation operation) {
  if (!card().streams.contains(stream)) return invalid(function, "no such stream", kInvalidHandle);
  if (stream->capturing)
    stream->recording.push_back(std::move(operation));
  else
    stream->queue.push_back(std::move(operation));
  return kSuccess;
}

// Calls that a capture on this thread forbids.
int refuse_capture(const char* function) {
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

// The probe kernels as host functions.
void run_probe(const std::string& name, const rocm_sd::ProbeParams& p, uint32_t groups) {
  const size_t bytes = static_cast<size_t>(p.count) * sizeof(float);
  if (!on_device(p.x, bytes) || !on_device(p.y, bytes)) return complain(name + ": reads outside its blocks");
  if (name == "probe_axpy")
    for (int64_t i = 0; i < std::min<int64_t>(p.count, int64_t{groups} * 256); ++i)
      p.y[i] += p.scale * p.x[i];
  if (name == "probe_reverse")
    for (int64_t first = 0; first < std::min<int64_t>(p.count, int64_t{groups} * 64); first += 64) {
      const int64_t here = std::min<int64_t>(64, p.count - first);
      for (int64_t i = 0; i < here; ++i) p.y[first + i] = p.x[first + here - 1 - i];
    }
  if (name == "probe_spin") {
    volatile float* y = p.y;
    for (int i = 0; i < p.rounds; ++i) *y = *y + p.x[0];
  }
}

}  // namespace

extern "C" {

const char* fake_hip_complaints() { return card().complaints.c_str(); }
size_t fake_hip_live() {
  const Card& c = card();
  return c.blocks.size() + c.pinned.size() + c.streams.size() + c.events.size() + c.modules.size() +
         c.graphs.size() + c.execs.size();
}
size_t fake_hip_calls(const char* function) { return card().calls[function]; }
void fake_hip_fail(const char* function, int status) {
  if (status == kSuccess)
    card().failing.erase(function);
  else
    card().failing[function] = status;
}
void fake_hip_card(const char* arch, uint64_t memory_bytes) {
  card().arch = arch;
  card().memory = memory_bytes;
}

const char* hipGetErrorName(int status) {
  switch (status) {
    case kSuccess: return "hipSuccess";
    case kInvalidValue: return "hipErrorInvalidValue";
    case kOutOfMemory: return "hipErrorOutOfMemory";
    case kInvalidHandle: return "hipErrorInvalidHandle";
    case kCaptureUnsupported: return "hipErrorStreamCaptureUnsupported";
    default: return "hipErrorUnknown";
  }
}
const char* hipGetErrorString(int) { return "as the stand-in says"; }

int hipInit(unsigned flags) {
  ENTER(false);
  if (flags != 0) return invalid(__func__, "flags must be 0");
  card().initialised = true;
  return kSuccess;
}
int hipGetDeviceCount(int* count) {
  ENTER(false);
  *count = 1;
  return kSuccess;
}
int hipSetDevice(int device) {
  ENTER(false);
  if (device != 0) return invalid(__func__, "there is one device", kInvalidDevice);
  device_set = true;
  return kSuccess;
}
int hipDeviceGetName(char* name, int bytes, int device) {
  ENTER(false);
  if (device != 0) return kInvalidDevice;
  std::strncpy(name, "Stand-in Radeon", static_cast<size_t>(bytes));
  return kSuccess;
}
int hipDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(false);
  if (device != 0) return kInvalidDevice;
  switch (attribute) {
    case 16: *value = 0; return kSuccess;                                          // integrated
    case 19: *value = 6 << 20; return kSuccess;                                    // L2
    case 63: *value = 48; return kSuccess;                                         // multiprocessors
    case 74: *value = 64 << 10; return kSuccess;                                   // LDS of a group
    case 87: *value = card().arch.starts_with("gfx9") ? 64 : 32; return kSuccess;  // lanes
    default: return invalid(__func__, "an attribute that the stand-in does not know");
  }
}
int hipDeviceTotalMem(size_t* bytes, int device) {
  ENTER(false);
  if (device != 0) return kInvalidDevice;
  *bytes = card().memory;
  return kSuccess;
}

// The struct of ROCM_SD_FAKE_ROCM's generation: its size, and the architecture's name in its place.
static int fill_properties(void* properties, size_t bytes, size_t arch_offset) {
  std::memset(properties, 0x5a, bytes);
  std::strcpy(static_cast<char*>(properties) + arch_offset, card().arch.c_str());
  return kSuccess;
}
#if ROCM_SD_FAKE_ROCM >= 6
int hipGetDevicePropertiesR0600(void* properties, int device) {
  ENTER(false);
  return device == 0 ? fill_properties(properties, 1472, 1160) : kInvalidDevice;
}
#endif
int hipGetDeviceProperties(void* properties, int device) {
  ENTER(false);
  return device == 0 ? fill_properties(properties, 792, 396) : kInvalidDevice;
}

int hipMemGetInfo(size_t* free, size_t* total) {
  ENTER();
  *total = card().memory;
  *free = card().memory - card().used;
  return kSuccess;
}
int hipMalloc(void** data, size_t bytes) {
  ENTER();
  if (const int refused = refuse_capture(__func__)) return refused;
  if (bytes == 0) return invalid(__func__, "0 bytes");
  if (bytes > card().memory - card().used) return kOutOfMemory;
  auto* block = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  if (!block) return kOutOfMemory;
  std::memset(block, 0xfb, bytes);  // poison
  card().blocks[block] = bytes;
  card().used += bytes;
  *data = block;
  return kSuccess;
}
int hipFree(void* data) {
  ENTER();
  if (const int refused = refuse_capture(__func__)) return refused;
  run_everything();  // as HIP does
  const auto block = card().blocks.find(static_cast<char*>(data));
  if (block == card().blocks.end()) return invalid(__func__, "no such block, or freed twice");
  card().used -= block->second;
  card().blocks.erase(block);
  std::free(data);
  return kSuccess;
}
int hipHostMalloc(void** data, size_t bytes, unsigned) {
  ENTER();
  auto* block = static_cast<char*>(std::malloc(bytes));
  card().pinned[block] = bytes;
  *data = block;
  return kSuccess;
}
int hipHostFree(void* data) {
  ENTER();
  run_everything();
  if (card().pinned.erase(static_cast<char*>(data)) == 0) return invalid(__func__, "no such pinned block");
  std::free(data);
  return kSuccess;
}

int hipMemcpyAsync(void* dst, const void* src, size_t bytes, int kind, Stream* stream) {
  ENTER();
  const bool from_device = kind == 2 || kind == 3, to_device = kind == 1 || kind == 3;
  if (!from_device && !to_device) return invalid(__func__, "an unknown kind of copy");
  if (from_device && !on_device(src, bytes)) return invalid(__func__, "the source is in no block");
  if (to_device && !on_device(dst, bytes)) return invalid(__func__, "the destination is in no block");
  const void* host = from_device ? dst : src;
  if (kind != 3 && !inside(card().pinned, host, bytes)) {
    // Pageable memory: HIP has read or written it when the call returns.
    if (card().streams.contains(stream)) run_all(*stream);
    std::memcpy(dst, src, bytes);
    return kSuccess;
  }
  return enqueue(stream, __func__, {[=] { std::memmove(dst, src, bytes); }});
}
int hipMemsetAsync(void* data, int value, size_t bytes, Stream* stream) {
  ENTER();
  if (!on_device(data, bytes)) return invalid(__func__, "the destination is in no block");
  return enqueue(stream, __func__, {[=] { std::memset(data, value, bytes); }});
}

int hipStreamCreateWithFlags(Stream** stream, unsigned flags) {
  ENTER();
  if (flags > 1) return invalid(__func__, "unknown flags");
  *stream = new Stream;
  card().streams.insert(*stream);
  return kSuccess;
}
int hipStreamDestroy(Stream* stream) {
  ENTER();
  if (card().streams.contains(stream)) run_all(*stream);
  return destroy(card().streams, stream, __func__);
}
int hipStreamSynchronize(Stream* stream) {
  ENTER();
  if (!card().streams.contains(stream)) return invalid(__func__, "no such stream", kInvalidHandle);
  if (const int refused = refuse_capture(__func__)) return refused;
  run_all(*stream);
  return kSuccess;
}

int hipModuleLoadData(Module** module, const void* image) {
  ENTER();
  // An ELF says how long it is: the section headers are its last part.
  const auto* bytes = static_cast<const char*>(image);
  uint64_t headers;
  uint16_t each, count;
  std::memcpy(&headers, bytes + 0x28, sizeof(headers));
  std::memcpy(&each, bytes + 0x3a, sizeof(each));
  std::memcpy(&count, bytes + 0x3c, sizeof(count));
  if (std::memcmp(bytes, "\177ELF", 4) != 0 || headers > (1u << 30))
    return invalid(__func__, "no ELF", kInvalidImage);
  auto loaded = std::make_unique<Module>();
  try {
    loaded->kernels = rocm_sd::kernels_of_code_object({bytes, headers + uint64_t{each} * count}, "module");
  } catch (const std::exception& error) {
    return invalid(__func__, error.what(), kInvalidImage);
  }
  *module = loaded.release();
  card().modules.insert(*module);
  return kSuccess;
}
int hipModuleUnload(Module* module) {
  ENTER();
  run_everything();
  for (auto it = card().functions.begin(); it != card().functions.end();) {
    if (it->second->module == module) {
      delete it->second;
      it = card().functions.erase(it);
    } else {
      ++it;
    }
  }
  return destroy(card().modules, module, __func__);
}
int hipModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER();
  if (!card().modules.contains(module)) return invalid(__func__, "no such module", kInvalidHandle);
  for (const auto& kernel : module->kernels) {
    if (kernel.name != name) continue;
    *function = new Function{module, kernel};
    card().functions[*function] = *function;
    return kSuccess;
  }
  return kNotFound;
}

int hipModuleLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned lds, Stream* stream,
                          void** params, void** extra) {
  ENTER();
  if (!card().functions.contains(function)) return invalid(__func__, "no such function", kInvalidHandle);
  if (params || !extra) return invalid(__func__, "expects its arguments as one buffer");
  if (extra[0] != reinterpret_cast<void*>(1) || extra[2] != reinterpret_cast<void*>(2) ||
      extra[4] != reinterpret_cast<void*>(3))
    return invalid(__func__, "a malformed list of arguments");
  const size_t bytes = *static_cast<size_t*>(extra[3]);
  if (bytes > function->kernel.params) return invalid(__func__, "more arguments than the kernel takes");
  if (uint64_t{grid_x} * grid_y * grid_z == 0) return invalid(__func__, "an empty grid");
  const uint64_t threads = uint64_t{block_x} * block_y * block_z;
  if (threads == 0 || threads > 1024) return invalid(__func__, "1 to 1024 threads make a group");
  if (lds + function->kernel.lds > (64u << 10)) return invalid(__func__, "more LDS than there is");
  std::string arguments(static_cast<const char*>(extra[1]), bytes);
  const std::string name = function->kernel.name;
  return enqueue(stream, __func__, {[=] {
                   if (!name.starts_with("probe_")) return;
                   rocm_sd::ProbeParams p;
                   if (arguments.size() != sizeof(p)) return complain(name + ": parameters of another size");
                   std::memcpy(&p, arguments.data(), sizeof(p));
                   run_probe(name, p, grid_x);
                 }});
}

int hipStreamBeginCapture(Stream* stream, int mode) {
  ENTER();
  if (!card().streams.contains(stream)) return invalid(__func__, "no such stream", kInvalidHandle);
  if (mode < 0 || mode > 2) return invalid(__func__, "an unknown mode");
  if (stream->capturing) return invalid(__func__, "the stream captures already");
  stream->capturing = true;
  stream->invalidated = false;
  stream->recording.clear();
  return kSuccess;
}
int hipStreamEndCapture(Stream* stream, Graph** graph) {
  ENTER();
  if (!card().streams.contains(stream) || !stream->capturing)
    return invalid(__func__, "no capture has begun");
  stream->capturing = false;
  *graph = nullptr;
  if (stream->invalidated) return kCaptureInvalidated;
  *graph = new Graph{std::move(stream->recording)};
  card().graphs.insert(*graph);
  return kSuccess;
}
int hipGraphInstantiateWithFlags(Graph** exec, Graph* graph, unsigned long long flags) {
  ENTER();
  if (!card().graphs.contains(graph)) return invalid(__func__, "no such graph", kInvalidHandle);
  if (flags != 0) return invalid(__func__, "unknown flags");
  *exec = new Graph(*graph);
  card().execs.insert(*exec);
  return kSuccess;
}
int hipGraphDestroy(Graph* graph) {
  ENTER();
  return destroy(card().graphs, graph, __func__);
}
int hipGraphLaunch(Graph* exec, Stream* stream) {
  ENTER();
  if (!card().execs.contains(exec)) return invalid(__func__, "no such executable graph", kInvalidHandle);
  for (const Operation& operation : exec->operations)
    if (const int status = enqueue(stream, __func__, operation)) return status;
  return kSuccess;
}
int hipGraphExecDestroy(Graph* exec) {
  ENTER();
  for (void* stream : card().streams)
    if (!static_cast<Stream*>(stream)->queue.empty()) complain("hipGraphExecDestroy: it may still run");
  return destroy(card().execs, exec, __func__);
}

int hipEventCreateWithFlags(Event** event, unsigned flags) {
  ENTER();
  if (flags != 0) return invalid(__func__, "events without times were asked for");
  *event = new Event;
  card().events.insert(*event);
  return kSuccess;
}
int hipEventDestroy(Event* event) {
  ENTER();
  run_everything();
  return destroy(card().events, event, __func__);
}
int hipEventRecord(Event* event, Stream* stream) {
  ENTER();
  if (!card().events.contains(event)) return invalid(__func__, "no such event", kInvalidHandle);
  event->recorded = true;
  event->done = false;
  return enqueue(stream, __func__, {nullptr, event});
}
int hipEventSynchronize(Event* event) {
  ENTER();
  if (!card().events.contains(event)) return invalid(__func__, "no such event", kInvalidHandle);
  if (!event->recorded) return kSuccess;
  for (void* handle : card().streams) {
    auto* stream = static_cast<Stream*>(handle);
    while (!event->done && !stream->queue.empty()) run_next(*stream);
  }
  return event->done ? kSuccess : invalid(__func__, "waits for ever");
}
int hipEventElapsedTime(float* milliseconds, Event* start, Event* end) {
  ENTER();
  if (!card().events.contains(start) || !card().events.contains(end))
    return invalid(__func__, "no such event", kInvalidHandle);
  if (!start->recorded || !end->recorded)
    return invalid(__func__, "an event that was not recorded", kInvalidHandle);
  if (!start->done || !end->done) return kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return kSuccess;
}

}  // extern "C"
