// What the checks need to know of an instruction: the registers that it reads and writes, what it counts,
// waits for and stands still for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "emulator/program.hpp"

namespace rocm_sd::emu {

// Counters of outstanding memory operations. gfx9: stores count as loads do, scalar loads as LDS operations;
// gfx11: scalar loads count as LDS operations; gfx12: one each.
enum class Counter : uint8_t { kLoad, kStore, kLds, kScalar };
constexpr int kCounters = 4;

enum class Unit : uint8_t { kOther, kScalarMemory, kVector, kMatrix, kLoad, kStore, kFlat, kLds };

struct Uses {
  struct Registers {
    uint16_t first = 0;
    uint8_t count = 0;
  };
  template <size_t kMax>
  struct List {
    std::array<Registers, kMax> of{};
    uint8_t size = 0;
    void add(const Operand& o) {
      if (size < kMax && o.reg < kSpareRow) of[size++] = {o.reg, o.dwords};
    }
    const Registers* begin() const { return of.data(); }
    const Registers* end() const { return of.data() + size; }
  };
  List<6> vector_reads, scalar_reads;
  List<2> vector_writes, scalar_writes;

  Unit unit = Unit::kOther;
  Counter counter = Counter::kLoad;                      // of memory operations
  std::array<int16_t, kCounters> waits{-1, -1, -1, -1};  // the count that a wait leaves; -1: does not wait
  uint8_t states = 1;                                    // wait states: more for s_nop
  bool writes_exec = false;
  bool is_dot = false;
  // Of matrix instructions: passes of four cycles (gfx9), f64, and whether it is not f32 nor f64 (XDL).
  uint8_t passes = 0;
  bool is_double = false, is_xdl = false, is_mfma = false;
};

Uses uses_of(const Inst& inst, std::string_view text, const Target& target);

}  // namespace rocm_sd::emu
