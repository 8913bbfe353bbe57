// What a wave finds in its registers: LLVM's "User Guide for AMDGPU Backend", initial kernel execution state.
#include <algorithm>
#include <cstring>

#include "emulator/executor.hpp"

namespace rocm_sd::emu {

namespace {

constexpr uint32_t kPoison = 0x7fc0dead;  // a NaN, and no address
constexpr uint32_t kMaxLds = 64 * 1024, kMaxThreads = 1024;
constexpr size_t kSlack = 256;  // scalar loads may be widened past the last argument

// Kernel code properties: which user SGPRs are set up.
enum Property : uint32_t {
  kSegmentBuffer = 1,
  kDispatchPtr = 2,
  kQueuePtr = 4,
  kKernargPtr = 8,
  kDispatchId = 16,
  kFlatScratchInit = 32,
  kSegmentSize = 64,
  kWave32 = 1 << 10,
  kDynamicStack = 1 << 11
};

template <class T>
void put(std::span<std::byte> to, size_t offset, T value) {
  if (offset + sizeof(T) <= to.size()) std::memcpy(to.data() + offset, &value, sizeof(T));
}

}  // namespace

LaunchPlan::LaunchPlan(const Program& code, uint64_t image, const Kernel& k, const Launch& l,
                       std::span<const std::byte> kernarg, Memory& memory, uint32_t stack_bytes)
    : program(code), kernel(k), launch(l), base(image), memory_(memory) {
  const Dim3& b = launch.block;
  const uint64_t count = uint64_t{b.x} * b.y * b.z;
  require<UsageError>(count > 0 && groups() > 0, "kernel ", k.name, ": an empty launch");
  require<UsageError>(
      count <= std::min(kMaxThreads, k.max_threads) && b.x <= 1024 && b.y <= 1024 && b.z <= 1024, "kernel ",
      k.name, ": a group of ", count, " threads, at most ", std::min(kMaxThreads, k.max_threads));
  threads = static_cast<uint32_t>(count);
  lanes = program.target.gfx9 || !(k.properties & kWave32) ? 64 : 32;
  waves = (threads + lanes - 1) / lanes;
  const uint64_t lds = uint64_t{k.lds_bytes} + launch.dynamic_lds;
  require<UsageError>(lds <= kMaxLds, "kernel ", k.name, ": ", lds, " bytes of LDS, a group has ", kMaxLds);
  lds_bytes = static_cast<uint32_t>(lds);
  // Calls through pointers and recursion: how deep, the compiler could not tell.
  scratch_bytes = k.scratch_bytes + (k.properties & kDynamicStack ? stack_bytes : 0);
  // What fills the preloaded registers on cards that do not preload stands in the first 256 bytes; those that
  // do begin behind it (LLVM's "User Guide for AMDGPU Backend", preloaded kernel arguments).
  entry = program.at(base + k.entry + (preloads() ? 256 : 0));
  require<UsageError>(entry != nullptr, "kernel ", k.name, ": its entry is not an instruction");
  require<UsageError>((k.rsrc1 >> 12 & 15) == 0, "kernel ", k.name,
                      ": not emulated: rounding other than to nearest even");

  const uint32_t granule = program.target.gfx9 || lanes == 32 ? 8 : 4;
  vgprs = std::min(((k.rsrc1 & 63) + 1) * granule, program.target.accumulators ? 512u : 256u);
  if (program.target.accumulators) {  // one file, accumulators after the others
    const uint32_t first = std::min(((k.rsrc3 & 63) + 1) * 4, vgprs);
    accumulators = std::min(vgprs - first, 256u);
    vgprs = std::min(first, 256u);
  }

  uint64_t explicit_end = 0;
  for (const KernelArgument& a : k.arguments)
    if (!a.kind.starts_with("hidden_")) explicit_end = std::max(explicit_end, uint64_t{a.offset} + a.size);
  require<UsageError>(
      kernarg.size() >= explicit_end && kernarg.size() <= std::max<uint64_t>(k.kernarg_bytes, explicit_end),
      "kernel ", k.name, ": ", kernarg.size(), " bytes of arguments, expected ", explicit_end);
  arguments_.resize(k.kernarg_bytes + kSlack + 64);
  auto* first =
      reinterpret_cast<std::byte*>((reinterpret_cast<uint64_t>(arguments_.data()) + 63) & ~uint64_t{63});
  kernarg_ = std::span(first, k.kernarg_bytes + kSlack);
  if (!kernarg.empty()) std::memcpy(first, kernarg.data(), kernarg.size());
  packet_.resize(64 + 256);
  fill_hidden();
  write_packet();
  memory_.admit(kernarg_.data(), kernarg_.size());
  memory_.admit(packet_.data(), packet_.size());
  ranges = memory_.ranges();
}

bool LaunchPlan::preloads() const { return program.target.gfx9 && (kernel.kernarg_preload & 127) != 0; }

LaunchPlan::~LaunchPlan() {
  memory_.forget(kernarg_.data());
  memory_.forget(packet_.data());
}

void LaunchPlan::fill_hidden() {
  const Dim3 &g = launch.grid, &b = launch.block;
  for (const KernelArgument& a : kernel.arguments) {
    if (a.kind == "hidden_block_count_x") put(kernarg_, a.offset, g.x);
    if (a.kind == "hidden_block_count_y") put(kernarg_, a.offset, g.y);
    if (a.kind == "hidden_block_count_z") put(kernarg_, a.offset, g.z);
    if (a.kind == "hidden_group_size_x") put(kernarg_, a.offset, static_cast<uint16_t>(b.x));
    if (a.kind == "hidden_group_size_y") put(kernarg_, a.offset, static_cast<uint16_t>(b.y));
    if (a.kind == "hidden_group_size_z") put(kernarg_, a.offset, static_cast<uint16_t>(b.z));
    if (a.kind == "hidden_grid_dims")
      put(kernarg_, a.offset, static_cast<uint16_t>(g.z * b.z > 1 ? 3 : g.y * b.y > 1 ? 2 : 1));
    if (a.kind == "hidden_dynamic_lds_size") put(kernarg_, a.offset, launch.dynamic_lds);
    if (a.kind == "hidden_shared_base") put(kernarg_, a.offset, kSharedWindow);
    if (a.kind == "hidden_private_base") put(kernarg_, a.offset, kPrivateWindow);
    if (a.kind == "hidden_queue_ptr")
      put(kernarg_, a.offset, reinterpret_cast<uint64_t>(packet_.data()) + 64);
    for (size_t s = 0; s < host_services().size(); ++s)
      if (a.kind == host_services()[s].argument)
        put(kernarg_, a.offset, kServiceWindow + (uint64_t{s} << 32));
  }
}

// The AQL packet that the dispatch pointer leads to.
void LaunchPlan::write_packet() {
  const Dim3 &g = launch.grid, &b = launch.block;
  put(packet_, 2, static_cast<uint16_t>(3));
  put(packet_, 4, static_cast<uint16_t>(b.x));
  put(packet_, 6, static_cast<uint16_t>(b.y));
  put(packet_, 8, static_cast<uint16_t>(b.z));
  put(packet_, 12, g.x * b.x);
  put(packet_, 16, g.y * b.y);
  put(packet_, 20, g.z * b.z);
  put(packet_, 24, scratch_bytes);
  put(packet_, 28, lds_bytes);
  put(packet_, 40, reinterpret_cast<uint64_t>(kernarg_.data()));
}

void LaunchPlan::user_scalars(Wave& w) const {
  uint32_t next = 0;
  const auto pair = [&](uint64_t value) {
    w.sgpr[next++] = static_cast<uint32_t>(value);
    w.sgpr[next++] = static_cast<uint32_t>(value >> 32);
  };
  const uint32_t properties = kernel.properties;
  if (properties & kSegmentBuffer) {  // a resource whose base names the scratch: buffer_pointers() knows it
    pair(reinterpret_cast<uint64_t>(w.scratch));
    pair(0xffffffffull);
  }
  if (properties & kDispatchPtr) pair(reinterpret_cast<uint64_t>(packet_.data()));
  if (properties & kQueuePtr) pair(reinterpret_cast<uint64_t>(packet_.data()) + 64);
  if (properties & kKernargPtr) pair(reinterpret_cast<uint64_t>(kernarg_.data()));
  if (properties & kDispatchId) pair(0);
  if (properties & kFlatScratchInit) pair(0);
  if (properties & kSegmentSize) w.sgpr[next++] = scratch_bytes;
  const uint32_t preload = kernel.kernarg_preload & 127, from = kernel.kernarg_preload >> 7;
  for (uint32_t i = 0; i < preload && next < 32; ++i)
    if ((from + i + 1) * 4 <= kernarg_.size())
      std::memcpy(&w.sgpr[next++], kernarg_.data() + (from + i) * 4, 4);
  next = std::max(next, kernel.rsrc2 >> 1 & 31);  // user SGPRs end where the descriptor says
  const uint32_t* id = w.group->id;
  if (program.target.gfx12) {
    w.sgpr[kTtmp + 9] = id[0];
    w.sgpr[kTtmp + 7] = (id[1] & 0xffff) | id[2] << 16;
    return;
  }
  for (int axis = 0; axis < 3; ++axis)
    if (kernel.rsrc2 >> (7 + axis) & 1) w.sgpr[next++] = id[axis];
  if (kernel.rsrc2 >> 10 & 1) w.sgpr[next++] = 0;
  if (!program.target.architected_scratch && kernel.rsrc2 & 1)
    w.sgpr[next++] = 0;  // the wave's offset in the scratch
}

void LaunchPlan::start_wave(Wave& w, uint32_t index) const {
  std::fill(std::begin(w.sgpr), std::end(w.sgpr), kPoison);
  for (uint32_t h = 0; h < w.halves; ++h) {
    uint32_t* rows = w.rows + h * w.half_stride;
    std::fill_n(rows, vgprs * kRow, kPoison);
    std::fill_n(rows + 256 * kRow, accumulators * kRow, kPoison);
  }
  w.index = index;
  w.pc = entry;
  w.state = State::kYield;
  // The descriptor's modes of floats; whether clamping keeps NaN and whether operations are in IEEE mode.
  set_mode(w, (kernel.rsrc1 >> 12 & 0xff) | (kernel.rsrc1 >> 21 & 1) << 8 | (kernel.rsrc1 >> 23 & 1) << 9);
  w.loops = w.signalled = 0;
  w.instructions = 0;
  w.hit_begin = 1, w.hit_end = 0;
  const auto window = [&](uint16_t reg, uint64_t value) {
    w.sgpr[reg] = static_cast<uint32_t>(value);
    w.sgpr[reg + 1] = static_cast<uint32_t>(value >> 32);
  };
  window(kSharedBase, kSharedWindow);
  window(kSharedLimit, kSharedWindow + 0xffffffff);
  window(kPrivateBase, kPrivateWindow);
  window(kPrivateLimit, kPrivateWindow + 0xffffffff);
  window(kFlatScratch, 0);
  w.sgpr[kScc] = 0;
  user_scalars(w);
  const uint32_t first = index * lanes, count = std::min(lanes, threads - first);
  w.sgpr[kExec] = count >= 32 ? ~0u : (1u << count) - 1;
  w.sgpr[kExec + 1] = lanes == 32 || count <= 32 ? 0 : count == 64 ? ~0u : (1u << (count - 32)) - 1;
  const uint32_t ids = kernel.rsrc2 >> 11 & 3;  // of the axes that v0 holds
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    const uint32_t flat = first + lane;
    const uint32_t x = flat % launch.block.x, y = flat / launch.block.x % launch.block.y;
    const uint32_t z = flat / launch.block.x / launch.block.y;
    w.rows[(lane >> 5) * w.half_stride + (lane & 31)] =
        x | (ids >= 1 ? (y & 1023) << 10 : 0) | (ids >= 2 ? (z & 1023) << 20 : 0);
  }
}

}  // namespace rocm_sd::emu
