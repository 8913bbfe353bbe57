// What the time model needs to know of each instruction of a program.
#pragma once

#include <vector>

#include "emulator/machine.hpp"
#include "emulator/rates.hpp"
#include "emulator/uses.hpp"

namespace rocm_sd::emu {

enum class Engine : uint8_t {
  kInside,  // waits, s_nop and the like: no unit
  kVector,
  kTrans,
  kMatrix,
  kScalar,
  kBranch,
  kLds,
  kMemory,
  kScalarLoad,
  kBarrier,  // arrives and waits
  kSignal,   // arrives (split barriers)
  kJoin,     // waits
};

struct InstructionCost {
  Engine engine = Engine::kInside;
  bool second = false;  // issued with the one before it
  bool stores = false;  // to memory, without a result
  double busy = 1;      // cycles of its unit; of LDS: of a shuffle, accesses are recorded
  double vector = 0;    // cycles of the vector unit beside that
  double latency = 0;   // until its result may be read
  double chain = 0;     // until a matrix instruction that adds to the same registers may issue
  double pause = 1;     // until the wave's next instruction
  Uses uses;
  // Vector registers of the addend of a matrix instruction.
  Uses::Registers addend;
};

// By index in Program::code. lanes: of a wave.
std::vector<InstructionCost> instruction_costs(const Program& program, const Machine& machine,
                                               const CardRates& rates, uint32_t lanes);

}  // namespace rocm_sd::emu
