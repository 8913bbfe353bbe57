// The time of workgroups on one processor, modelled: what their waves did (recording.hpp) is played again,
// cycle by cycle, on a machine description. A processor is what has LDS of its own: a compute unit (CDNA), a
// work-group processor of two compute units (RDNA).
//
// A wave issues in order: an instruction when its registers are ready, its counters have come down, its
// barrier is complete and its unit is free. A SIMD takes one instruction a cycle for each of its units, the
// oldest wave first. Not modelled: instruction fetch, banks of registers, priorities of waves, addresses'
// translation, banks of caches and of DRAM.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "emulator/machine.hpp"
#include "emulator/rates.hpp"
#include "emulator/recording.hpp"

namespace rocm_sd::emu {

// Why a wave did not issue.
enum class Stall : uint8_t {
  kNone,
  kResult,        // of the vector or scalar unit
  kMatrixResult,  // of a matrix instruction
  kVectorBusy,
  kTransBusy,
  kMatrixBusy,
  kScalarBusy,
  kLdsBusy,
  kMemoryBusy,  // the vector cache takes no more addresses
  kWaitLoad,
  kWaitStore,
  kWaitLds,
  kWaitScalar,
  kBarrier,
  kBranch,
};
constexpr int kStalls = 15;
std::string_view stall_name(Stall stall);

// What one processor gets of the card, in bytes and cycles of the shader clock.
struct MemoryShare {
  double l2_bytes = 64, last_level_bytes = 64, memory_bytes = 64;  // a cycle
  double l2_latency = 250, last_level_latency = 400, memory_latency = 600;
  // Of the lines that leave the vector caches, the share that the second-level cache lacks; of these, the
  // share that the last level lacks. Stores that leave the last level.
  double past_l2 = 1, past_last_level = 1, stores_past = 1;
  double write_room = 0;  // bytes of the second-level cache that may wait to be written back
};

struct ProcessorPlan {
  uint32_t units = 1;     // compute units
  bool spans = false;     // a group has the SIMDs of all of them
  uint32_t resident = 1;  // groups at once, in one unit (or in all, where it spans)
  uint32_t lanes = 32;    // of a wave
  bool has_last_level = true;
};

// One instruction issued.
struct Issued {
  uint32_t group = 0, wave = 0, simd = 0;  // group: its place in the order of starts
  uint32_t inst = 0;                       // in Program::code
  double from = 0, at = 0, busy = 0;       // could have issued, issued, cycles of its unit
  Stall why = Stall::kNone;                // between the two
};
using IssueWatch = std::function<void(const Issued&)>;

struct ProcessorTime {
  std::vector<double> ends;              // of groups, ascending: cycles from the start
  std::array<double, kStalls> stalls{};  // cycles of waves
  double wave_cycles = 0;                // of all waves, from start to end
  // Cycles of units, summed over SIMDs (the first four) and compute units.
  double matrix = 0, vector = 0, transcendental = 0, scalar = 0, lds = 0, l0 = 0;
  // Lines of 64 bytes: asked of the vector caches, missing there, coming from the card's memory, stored.
  double lines = 0, missed = 0, from_memory = 0, stored = 0;
};

// Plays the groups in this order, each as soon as there is a place. rates: of the target that the program is
// for.
ProcessorTime run_processor(const Program& program, const Machine& machine, const CardRates& rates,
                            std::span<const GroupRecord* const> groups, const ProcessorPlan& plan,
                            const MemoryShare& share, const IssueWatch& watch = {});

}  // namespace rocm_sd::emu
