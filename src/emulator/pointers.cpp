// Addresses of vector memory and LDS instructions, checked lane by lane.
#include "emulator/checker.hpp"
#include "emulator/counting.hpp"
#include "emulator/memory_core.hpp"
#include "emulator/recording.hpp"

namespace rocm_sd::emu {

using ROCM_SD_ISA::exec_of;
using ROCM_SD_ISA::raw_row;
using ROCM_SD_ISA::scalar;
using ROCM_SD_ISA::scalar64;

namespace {

void observe_global(Wave& w, const Inst& in, const Pointers& p, uint32_t bytes) {
  if (w.group->check) [[unlikely]]
    w.group->check->global(w, in, p, bytes);
  if (w.group->meter) [[unlikely]]
    w.group->meter->global(w, in, p, bytes);
  if (w.group->recorder) [[unlikely]]
    w.group->recorder->global(w, in, p, bytes);
}
void observe_lds(Wave& w, const Inst& in, const Pointers& p, uint32_t bytes) {
  if (w.group->check) [[unlikely]]
    w.group->check->lds(w, in, p, bytes);
  if (w.group->meter) [[unlikely]]
    w.group->meter->lds(w, in, p, bytes);
  if (w.group->recorder) [[unlikely]]
    w.group->recorder->lds(w, in, p, bytes);
}
void observe_scratch(Wave& w, const Inst& in, const Pointers& p, uint32_t bytes) {
  if (w.group->check) [[unlikely]]
    w.group->check->scratch(w, in, p, bytes);
  if (w.group->recorder) [[unlikely]]
    w.group->recorder->scratch(w, p, bytes);
}

uint8_t* scratch_byte(Wave& w, const Inst& in, uint32_t offset, uint32_t bytes, uint32_t lane) {
  if (static_cast<uint64_t>(offset) + bytes > w.scratch_bytes) [[unlikely]]
    fault(w, in,
          concat("lane ", lane, " reaches byte ", offset, " of a scratch of ", w.scratch_bytes, " bytes"));
  return w.scratch + static_cast<size_t>(lane) * w.scratch_bytes + offset;
}

}  // namespace

void global_pointers(Wave& w, const Inst& in, const Operand& vaddr, const Operand& saddr, uint32_t bytes,
                     Pointers& out) {
  alignas(64) uint32_t b0[kRow], b1[kRow];
  const bool based = saddr.kind == Kind::kSgpr;
  const uint64_t base =
      (based ? scalar64(w, saddr) : 0) + static_cast<uint64_t>(static_cast<int64_t>(in.offset));
  for (uint32_t h = 0; h < w.halves; ++h) {
    out.active[h] = exec_of(w, h);
    if (!out.active[h]) continue;
    alignas(64) uint64_t address[kRow];
    const uint32_t* low = raw_row(w, vaddr, h, 0, b0);
    if (based) {
      ROCM_SD_LANES address[l] = base + low[l];
    } else {
      const uint32_t* high = raw_row(w, vaddr, h, 1, b1);
      ROCM_SD_LANES address[l] = base + (low[l] | static_cast<uint64_t>(high[l]) << 32);
    }
    for_active(out.active[h],
               [&](uint32_t l) { out.at[h * kRow + l] = access(w, in, address[l], bytes, h * kRow + l); });
  }
  observe_global(w, in, out, bytes);
}

void flat_pointers(Wave& w, const Inst& in, const Operand& vaddr, uint32_t bytes, Pointers& out) {
  alignas(64) uint32_t b0[kRow], b1[kRow];
  for (uint32_t h = 0; h < w.halves; ++h) {
    out.active[h] = exec_of(w, h);
    if (!out.active[h]) continue;
    const uint32_t* low = raw_row(w, vaddr, h, 0, b0);
    const uint32_t* high = raw_row(w, vaddr, h, 1, b1);
    for_active(out.active[h], [&](uint32_t l) {
      const uint32_t lane = h * kRow + l;
      const uint64_t address = (low[l] | static_cast<uint64_t>(high[l]) << 32) +
                               static_cast<uint64_t>(static_cast<int64_t>(in.offset));
      const auto window = static_cast<uint32_t>(address >> 32), offset = static_cast<uint32_t>(address);
      if (window == w.sgpr[kSharedBase + 1])
        out.at[lane] = lds_access(w, in, offset, bytes, lane);
      else if (window == w.sgpr[kPrivateBase + 1])
        out.at[lane] = scratch_byte(w, in, offset, bytes, lane);
      else
        out.at[lane] = access(w, in, address, bytes, lane);
    });
  }
  observe_lds(w, in, out, bytes);
  observe_scratch(w, in, out, bytes);
  observe_global(w, in, out, bytes);
}

void scratch_pointers(Wave& w, const Inst& in, const Operand& vaddr, const Operand& saddr, uint32_t bytes,
                      Pointers& out) {
  alignas(64) uint32_t buffer[kRow];
  const uint32_t base = (saddr.kind == Kind::kSgpr ? scalar(w, saddr) : 0) + static_cast<uint32_t>(in.offset);
  for (uint32_t h = 0; h < w.halves; ++h) {
    out.active[h] = exec_of(w, h);
    if (!out.active[h]) continue;
    const uint32_t* v = vaddr.kind == Kind::kVgpr ? raw_row(w, vaddr, h, 0, buffer) : nullptr;
    for_active(out.active[h], [&](uint32_t l) {
      const uint32_t lane = h * kRow + l;
      out.at[lane] = scratch_byte(w, in, base + (v ? v[l] : 0), bytes, lane);
    });
  }
  observe_scratch(w, in, out, bytes);
}

void buffer_pointers(Wave& w, const Inst& in, const Operand& vaddr, const Operand& resource,
                     const Operand& soffset, uint32_t bytes, Pointers& out, uint32_t outside[2],
                     uint32_t skip) {
  const uint64_t words = scalar64(w, resource);
  const uint64_t base = words & 0xffffffffffffull;
  const uint32_t stride = static_cast<uint32_t>(words >> 48) & 0x3fff;
  const uint32_t records = scalar(w, resource, 2);
  // The private segment of targets without architected scratch: one region a lane. A kernel without scratch
  // has an address for it all the same, where another buffer may begin.
  const bool is_private = w.scratch_bytes > 0 && base == reinterpret_cast<uint64_t>(w.scratch);
  const uint64_t limit = stride && in.flags & kIdxen ? static_cast<uint64_t>(records) * stride : records;
  const uint32_t scalar_offset = scalar(w, soffset);
  alignas(64) uint32_t b0[kRow], b1[kRow];
  for (uint32_t h = 0; h < w.halves; ++h) {
    outside[h] = 0;
    out.active[h] = exec_of(w, h);
    if (!out.active[h]) continue;
    const bool idxen = in.flags & kIdxen, offen = in.flags & kOffen;
    const uint32_t* index = idxen ? raw_row(w, vaddr, h, 0, b0) : nullptr;
    const uint32_t* offset = offen ? raw_row(w, vaddr, h, idxen ? 1 : 0, b1) : nullptr;
    for_active(out.active[h], [&](uint32_t l) {
      const uint32_t lane = h * kRow + l;
      const uint64_t at = (offset ? offset[l] : 0) + static_cast<uint64_t>(in.offset) + skip +
                          (index ? static_cast<uint64_t>(index[l]) * stride : 0);
      if (is_private) {
        // The scalar offset counts bytes of the whole wave: a stack pointer is one.
        out.at[lane] = scratch_byte(w, in, static_cast<uint32_t>(at) + scalar_offset / w.lanes, bytes, lane);
      } else if (at + bytes > limit) {
        outside[h] |= 1u << l;
      } else {
        out.at[lane] = access(w, in, base + scalar_offset + at, bytes, lane);
      }
    });
    out.active[h] &= ~outside[h];
  }
  if (is_private)
    observe_scratch(w, in, out, bytes);
  else
    observe_global(w, in, out, bytes);
}

void shared_pointer(Wave& w, const Inst& in, uint32_t address, Pointers& out) {
  bool found = false;
  for (uint32_t h = 0; h < w.halves; ++h) {
    const uint32_t exec = exec_of(w, h);
    out.active[h] = found ? 0 : exec & (0 - exec);
    for_active(out.active[h], [&](uint32_t l) {
      out.at[h * kRow + l] = lds_access(w, in, address, 4, h * kRow + l);
      found = true;
    });
  }
  observe_lds(w, in, out, 4);
}

void lane_slots(Wave& w, const Inst& in, const uint32_t active[2], Pointers& out) {
  const uint32_t first = (w.sgpr[kM0] & 0xffff) + static_cast<uint32_t>(in.offset);
  for (uint32_t h = 0; h < w.halves; ++h) {
    out.active[h] = active[h];
    for_active(active[h], [&](uint32_t l) {
      const uint32_t lane = h * kRow + l;
      out.at[lane] = lds_access(w, in, first + 4 * lane, 4, lane);
    });
  }
  observe_lds(w, in, out, 4);
}

void lds_pointers(Wave& w, const Inst& in, const Operand& addr, uint32_t offset, uint32_t bytes,
                  Pointers& out) {
  alignas(64) uint32_t buffer[kRow];
  for (uint32_t h = 0; h < w.halves; ++h) {
    out.active[h] = exec_of(w, h);
    if (!out.active[h]) continue;
    const uint32_t* a = raw_row(w, addr, h, 0, buffer);
    for_active(out.active[h], [&](uint32_t l) {
      out.at[h * kRow + l] = lds_access(w, in, a[l] + offset, bytes, h * kRow + l);
    });
  }
  observe_lds(w, in, out, bytes);
}

}  // namespace rocm_sd::emu
