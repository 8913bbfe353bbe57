// Modules, launches, graphs and events of the stand-in.
#include <algorithm>
#include <memory>

#include "../../../src/runtime/probe.hpp"
#include "card.hpp"

using namespace fake_hip;

namespace {

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
  for (void* handle : card().streams) {
    auto* other = static_cast<Stream*>(handle);
    if (other->joined != stream) continue;
    other->joined = nullptr;
    // Its last work must be waited for by the stream that began the capture.
    std::shared_ptr<Record> last;
    bool open = false;
    for (const Operation& operation : stream->recording) {
      if (operation.stream == other) open = true, last = operation.sets;
      if (operation.stream == stream && operation.needs && operation.needs == last) open = false;
    }
    if (open) return invalid(__func__, "a stream that joined the capture was not waited for", 904);
  }
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
  // Every launch has records of its own.
  std::map<Record*, std::shared_ptr<Record>> records;
  const auto own = [&](const std::shared_ptr<Record>& recorded) {
    if (!recorded) return recorded;
    std::shared_ptr<Record>& record = records[recorded.get()];
    if (!record) record = std::make_shared<Record>();
    return record;
  };
  for (Operation operation : exec->operations) {
    operation.sets = own(operation.sets);
    operation.needs = own(operation.needs);
    Stream* const to =
        operation.stream && card().streams.contains(operation.stream) ? operation.stream : stream;
    if (const int status = enqueue(to, __func__, operation)) return status;
  }
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
  event->last = std::make_shared<Record>();
  if (card().streams.contains(stream)) event->last->captured_by = stream->capturing ? stream : stream->joined;
  return enqueue(stream, __func__, {.event = event, .sets = event->last});
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

// roctx, of which the depth of open ranges is kept.
static int ranges = 0;
int roctxRangePushA(const char* name) {
  if (!name) complain("roctxRangePushA: no name");
  ++card().calls["roctxRangePushA"];
  return ranges++;
}
int roctxRangePop() {
  if (ranges == 0) complain("roctxRangePop: no range is open");
  ++card().calls["roctxRangePop"];
  return --ranges;
}

// A profiler's side of NVTX 3: asks for the table of the core module and writes its two functions there.
int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
  struct Callbacks {
    size_t bytes;
    int (*function_table)(uint32_t module, void (****places)(), unsigned* count);
  };
  const auto* callbacks = static_cast<const Callbacks*>(export_table(1));
  void (***places)() = nullptr;
  unsigned count = 0;
  if (!callbacks || callbacks->bytes < sizeof(Callbacks) || !callbacks->function_table(1, &places, &count) ||
      count != 16)
    return 0;
  if (callbacks->function_table(2, &places, &count) != 0) complain("NVTX: module 2 was not asked for");
  callbacks->function_table(1, &places, &count);
  *places[9] = reinterpret_cast<void (*)()>(roctxRangePushA);
  *places[11] = reinterpret_cast<void (*)()>(roctxRangePop);
  return 1;
}

}  // extern "C"
