// What loads, stores and atomics share: a host pointer for each active lane, and moving data between those
// pointers and registers. Every pointer is checked before any lane moves data.
#pragma once

#include <cstring>
#include <type_traits>

#include "emulator/lanes.hpp"
#include "emulator/program.hpp"

namespace rocm_sd::emu {

// Lane l of half h is at index 32 h + l. Lanes that are not in `active` have no pointer.
struct Pointers {
  uint8_t* at[64];
  uint32_t active[2];
};

template <class F>
inline void for_active(uint32_t mask, F f) {
  if (mask == 0xffffffff) {
    for (uint32_t l = 0; l < kRow; ++l) f(l);
  } else {
    for (; mask; mask &= mask - 1) f(static_cast<uint32_t>(__builtin_ctz(mask)));
  }
}

// Where the lanes of global_*, flat_* and scratch_* instructions point; throws KernelFault.
void global_pointers(Wave& w, const Inst& in, const Operand& vaddr, const Operand& saddr, uint32_t bytes,
                     Pointers& out);
void flat_pointers(Wave& w, const Inst& in, const Operand& vaddr, uint32_t bytes, Pointers& out);
void scratch_pointers(Wave& w, const Inst& in, const Operand& vaddr, const Operand& saddr, uint32_t bytes,
                      Pointers& out);
// buffer_*: lanes of which a byte is out of the buffer's range are not active; `outside` [halves] names them
// (loads give them zeros). skip: bytes that are added to the address.
void buffer_pointers(Wave& w, const Inst& in, const Operand& vaddr, const Operand& resource,
                     const Operand& soffset, uint32_t bytes, Pointers& out, uint32_t outside[2],
                     uint32_t skip = 0);
// ds_*: offset in bytes is added to the address operand.
void lds_pointers(Wave& w, const Inst& in, const Operand& addr, uint32_t offset, uint32_t bytes,
                  Pointers& out);
// The dword of LDS at an address that all lanes share, for the first active lane alone.
void shared_pointer(Wave& w, const Inst& in, uint32_t address, Pointers& out);
// Where the `active` lanes of a load to LDS write: a dword a lane from M0 and the instruction's offset on.
void lane_slots(Wave& w, const Inst& in, const uint32_t active[2], Pointers& out);

template <int kDwords>
inline void load_dwords(Wave& w, uint32_t reg, const Pointers& p) {
  for (uint32_t h = 0; h < w.halves; ++h)
    for (int d = 0; d < kDwords; ++d) {
      uint32_t* row = ROCM_SD_ISA::vgpr(w, reg + d, h);
      const auto* at = p.at + h * kRow;
      for_active(p.active[h], [&](uint32_t l) { std::memcpy(row + l, at[l] + 4 * d, 4); });
    }
}
template <int kDwords>
inline void store_dwords(Wave& w, const Operand& data, const Pointers& p) {
  alignas(64) uint32_t buffer[kRow];
  for (uint32_t h = 0; h < w.halves; ++h)
    for (int d = 0; d < kDwords; ++d) {
      const uint32_t* row = ROCM_SD_ISA::raw_row(w, data, h, d, buffer);
      auto* const* at = p.at + h * kRow;
      for_active(p.active[h], [&](uint32_t l) { std::memcpy(at[l] + 4 * d, row + l, 4); });
    }
}

enum class Part : uint8_t { kWhole, kLow, kHigh };  // what of the register a narrow access means

// T is an 8- or 16-bit integer; signed ones are extended. kLow and kHigh keep the other half of the register.
template <class T, Part kPart>
inline void load_narrow(Wave& w, uint32_t reg, const Pointers& p) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    uint32_t* row = ROCM_SD_ISA::vgpr(w, reg, h);
    for_active(p.active[h], [&](uint32_t l) {
      T value;
      std::memcpy(&value, p.at[h * kRow + l], sizeof(T));
      const auto wide = static_cast<uint32_t>(static_cast<int32_t>(value));
      if (kPart == Part::kWhole) row[l] = wide;
      if (kPart == Part::kLow) row[l] = (row[l] & 0xffff0000) | (wide & 0xffff);
      if (kPart == Part::kHigh) row[l] = (row[l] & 0xffff) | wide << 16;
    });
  }
}
template <class T, Part kPart>
inline void store_narrow(Wave& w, const Operand& data, const Pointers& p) {
  alignas(64) uint32_t buffer[kRow];
  for (uint32_t h = 0; h < w.halves; ++h) {
    const uint32_t* row = ROCM_SD_ISA::raw_row(w, data, h, 0, buffer);
    for_active(p.active[h], [&](uint32_t l) {
      const T value = static_cast<T>(kPart == Part::kHigh ? row[l] >> 16 : row[l]);
      std::memcpy(p.at[h * kRow + l], &value, sizeof(T));
    });
  }
}

// The width and kind of a plain load or store, as a type for the handlers' templates.
template <int kDwords>
struct Dwords {
  static constexpr uint32_t bytes = 4 * kDwords;
  static void load(Wave& w, uint32_t reg, const Pointers& p) { load_dwords<kDwords>(w, reg, p); }
  static void store(Wave& w, const Operand& data, const Pointers& p) { store_dwords<kDwords>(w, data, p); }
};
template <class T, Part kPart = Part::kWhole>
struct Narrow {
  static constexpr uint32_t bytes = sizeof(T);
  static void load(Wave& w, uint32_t reg, const Pointers& p) { load_narrow<T, kPart>(w, reg, p); }
  static void store(Wave& w, const Operand& data, const Pointers& p) { store_narrow<T, kPart>(w, data, p); }
};

// The loads and stores by name: gfx11's, then gfx9's. ENTRY(name, width).
#define ROCM_SD_LOADS(ENTRY, prefix)                                                           \
  ENTRY(prefix "load_u8", Narrow<uint8_t>), ENTRY(prefix "load_i8", Narrow<int8_t>),           \
      ENTRY(prefix "load_u16", Narrow<uint16_t>), ENTRY(prefix "load_i16", Narrow<int16_t>),   \
      ENTRY(prefix "load_b32", Dwords<1>), ENTRY(prefix "load_b64", Dwords<2>),                \
      ENTRY(prefix "load_b96", Dwords<3>), ENTRY(prefix "load_b128", Dwords<4>),               \
      ENTRY(prefix "load_d16_u8", FL(uint8_t)), ENTRY(prefix "load_d16_i8", FL(int8_t)),       \
      ENTRY(prefix "load_d16_b16", FL(uint16_t)), ENTRY(prefix "load_d16_hi_u8", FH(uint8_t)), \
      ENTRY(prefix "load_d16_hi_i8", FH(int8_t)), ENTRY(prefix "load_d16_hi_b16", FH(uint16_t))
#define ROCM_SD_STORES(ENTRY, prefix)                                                     \
  ENTRY(prefix "store_b8", Narrow<uint8_t>), ENTRY(prefix "store_b16", Narrow<uint16_t>), \
      ENTRY(prefix "store_b32", Dwords<1>), ENTRY(prefix "store_b64", Dwords<2>),         \
      ENTRY(prefix "store_b96", Dwords<3>), ENTRY(prefix "store_b128", Dwords<4>),        \
      ENTRY(prefix "store_d16_hi_b8", FH(uint8_t)), ENTRY(prefix "store_d16_hi_b16", FH(uint16_t))
template <class T>
using LowHalf = Narrow<T, Part::kLow>;
template <class T>
using HighHalf = Narrow<T, Part::kHigh>;
#define FL(T) LowHalf<T>
#define FH(T) HighHalf<T>

}  // namespace rocm_sd::emu
