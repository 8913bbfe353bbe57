// Scalar loads (SMEM): s_load_* and s_buffer_load_*, and the clocks.
#include <cstring>
#include <ctime>
#include <iterator>

#include "emulator/checker.hpp"
#include "emulator/operations.hpp"
#include "emulator/program.hpp"
#include "emulator/scalar_core.hpp"

namespace rocm_sd::emu {
namespace {

using ROCM_SD_ISA::put64;
using ROCM_SD_ISA::scalar;
using ROCM_SD_ISA::scalar64;

uint64_t offset_of(Wave& w, const Inst& in) {
  const Operand& o = in.src[1];
  const auto immediate = static_cast<int64_t>(in.offset);
  if (o.kind == Kind::kNone) return static_cast<uint64_t>(immediate);
  if (o.kind == Kind::kConst)
    return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(o.bits)) + immediate);
  return scalar(w, o) + static_cast<uint64_t>(immediate);
}

template <int kDwords>
void load(Wave& w, const Inst& in) {
  // Scalar loads ignore the low two bits of base and offset.
  const uint64_t address = (scalar64(w, in.src[0]) & ~3ull) + (offset_of(w, in) & ~3ull);
  const uint8_t* from = access(w, in, address, 4 * kDwords, 0);
  if (w.group->check) [[unlikely]]
    w.group->check->scalar(w, in, from, 4 * kDwords);
  std::memcpy(w.sgpr + in.dst.reg, from, 4 * kDwords);
}
template <class T>
void load_narrow(Wave& w, const Inst& in) {
  T value;
  std::memcpy(&value, access(w, in, scalar64(w, in.src[0]) + offset_of(w, in), sizeof(T), 0), sizeof(T));
  w.sgpr[in.dst.reg] = static_cast<uint32_t>(static_cast<int32_t>(value));
}
// Dwords past the end of the buffer read as 0.
template <int kDwords>
void buffer_load(Wave& w, const Inst& in) {
  const uint64_t words = scalar64(w, in.src[0]);
  const uint32_t stride = static_cast<uint32_t>(words >> 48) & 0x3fff;
  const uint64_t records = scalar(w, in.src[0], 2), limit = stride ? records * stride : records;
  const uint64_t base = words & 0xffffffffffffull, offset = offset_of(w, in) & ~3ull;
  for (uint32_t d = 0; d < kDwords; ++d) {
    uint32_t value = 0;
    if (offset + 4 * d + 4 <= limit) std::memcpy(&value, access(w, in, base + offset + 4 * d, 4, 0), 4);
    w.sgpr[in.dst.reg + d] = value;
  }
}

void cycles(Wave& w, const Inst& in) { put64(w, in.dst, clock_ticks()); }
void constant_clock(Wave& w, const Inst& in) { put64(w, in.dst, clock_ticks() / kCyclesPerTick); }
void nothing(Wave&, const Inst&) {}

constexpr Type kA = Type::kWide;
constexpr Operation entry(const char* name, Handler run) {
  return {name, run, Class::kSmem, 1, 2, false, kA, {kA, Type::kB32}};
}
constexpr Operation quiet(const char* name) {
  return {name, &nothing, Class::kOther, 0, 0, false, Type::kNone, {}};
}

constexpr Operation kTable[] = {
    entry("s_load_b32", &load<1>),
    entry("s_load_b64", &load<2>),
    entry("s_load_b96", &load<3>),
    entry("s_load_b128", &load<4>),
    entry("s_load_b256", &load<8>),
    entry("s_load_b512", &load<16>),
    entry("s_load_u8", &load_narrow<uint8_t>),
    entry("s_load_i8", &load_narrow<int8_t>),
    entry("s_load_u16", &load_narrow<uint16_t>),
    entry("s_load_i16", &load_narrow<int16_t>),
    entry("s_buffer_load_b32", &buffer_load<1>),
    entry("s_buffer_load_b64", &buffer_load<2>),
    entry("s_buffer_load_b96", &buffer_load<3>),
    entry("s_buffer_load_b128", &buffer_load<4>),
    entry("s_buffer_load_b256", &buffer_load<8>),
    entry("s_buffer_load_b512", &buffer_load<16>),
    {"s_memtime", &cycles, Class::kSmem, 1, 0, false, kA, {}},
    {"s_memrealtime", &constant_clock, Class::kSmem, 1, 0, false, kA, {}},
    quiet("s_dcache_inv"),
    quiet("s_dcache_wb"),
    quiet("s_gl1_inv"),
    quiet("s_prefetch_inst"),
    quiet("s_prefetch_inst_pc_rel"),
    quiet("s_prefetch_data"),
    quiet("s_prefetch_data_pc_rel"),
    quiet("s_buffer_prefetch_data"),
};

}  // namespace

uint64_t clock_ticks() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

Operations scalar_memory_operations() { return {kTable, std::size(kTable)}; }

}  // namespace rocm_sd::emu
