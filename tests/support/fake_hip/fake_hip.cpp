// Devices, memory and streams of the stand-in, and what tests ask it.
#include "fake_hip.hpp"

#include "card.hpp"

using namespace fake_hip;

extern "C" {

const char* fake_hip_complaints() { return card().complaints.c_str(); }
size_t fake_hip_live() {
  const Card& c = card();
  return c.blocks.size() + c.pinned.size() + c.registered.size() + c.streams.size() + c.events.size() +
         c.modules.size() + c.graphs.size() + c.execs.size();
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
void fake_hip_eager(bool eager) { card().eager = eager; }
void fake_hip_enqueue(void* stream, void (*work)(void*), void* argument) {
  const std::lock_guard lock(card().mutex);
  enqueue(static_cast<Stream*>(stream), __func__, {[=] { work(argument); }});
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
int hipGetDevice(int* device) {
  ENTER(false);
  *device = 0;
  return kSuccess;
}
int hipDeviceGetName(char* name, int bytes, int device) {
  ENTER(false);
  if (device != 0) return kInvalidDevice;
  std::strncpy(name, "Stand-in Radeon", static_cast<size_t>(bytes));
  return kSuccess;
}
int hipDeviceGetPCIBusId(char* id, int bytes, int device) {
  ENTER(false);
  if (device != 0) return kInvalidDevice;
  std::strncpy(id, "0000:03:00.0", static_cast<size_t>(bytes));
  return kSuccess;
}
int hipDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(false);
  if (device != 0) return kInvalidDevice;
  switch (attribute) {
    case 16: *value = 0; return kSuccess;                                          // integrated
    case 19: *value = 6 << 20; return kSuccess;                                    // L2
    case 63: *value = 48; return kSuccess;                                         // compute units
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

int hipHostRegister(void* data, size_t bytes, unsigned flags) {
  ENTER();
  if (flags != 0) return invalid(__func__, "unknown flags");
  for (const auto* held : {&card().pinned, &card().registered})
    for (const auto& [block, size] : *held)
      if (block < static_cast<char*>(data) + bytes && static_cast<char*>(data) < block + size)
        return invalid(__func__, "these pages are pinned");
  card().registered[static_cast<char*>(data)] = bytes;
  return kSuccess;
}
int hipHostUnregister(void* data) {
  ENTER();
  run_everything();
  if (card().registered.erase(static_cast<char*>(data)) == 0)
    return invalid(__func__, "no such registered pages");
  return kSuccess;
}

int hipMemcpyAsync(void* dst, const void* src, size_t bytes, int kind, Stream* stream) {
  ENTER();
  const bool from_device = kind == 2 || kind == 3, to_device = kind == 1 || kind == 3;
  if (!from_device && !to_device) return invalid(__func__, "an unknown kind of copy");
  if (from_device && !on_device(src, bytes)) return invalid(__func__, "the source is in no block");
  if (to_device && !on_device(dst, bytes)) return invalid(__func__, "the destination is in no block");
  const void* host = from_device ? dst : src;
  if (kind != 3 && !inside(card().pinned, host, bytes) && !inside(card().registered, host, bytes)) {
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

static int make_stream(Stream** stream, unsigned flags, const char* function) {
  if (flags > 1) return invalid(function, "unknown flags");
  *stream = new Stream;
  (*stream)->eager = card().eager && !card().streams.empty();
  card().streams.insert(*stream);
  return kSuccess;
}
int hipStreamCreateWithFlags(Stream** stream, unsigned flags) {
  ENTER();
  return make_stream(stream, flags, __func__);
}
int hipStreamCreateWithPriority(Stream** stream, unsigned flags, int /*priority*/) {
  ENTER();
  return make_stream(stream, flags, __func__);
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
int hipStreamWaitEvent(Stream* stream, Event* event, unsigned flags) {
  ENTER();
  if (!card().streams.contains(stream)) return invalid(__func__, "no such stream", kInvalidHandle);
  if (!card().events.contains(event)) return invalid(__func__, "no such event", kInvalidHandle);
  if (flags != 0) return invalid(__func__, "unknown flags");
  if (!event->last) return kSuccess;  // as HIP: nothing to wait for
  Stream* const by = event->last->captured_by;
  if (by && by != stream && !stream->joined) stream->joined = by;
  if (!by && (stream->capturing || stream->joined))
    return invalid(__func__, "a capture cannot wait for a record outside of it", kCaptureUnsupported);
  return enqueue(stream, __func__, {.needs = event->last});
}

}  // extern "C"
