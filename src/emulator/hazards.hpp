// Dependencies that matrix instructions leave to the compiler: too few instructions or wait states between
// one and what uses its registers.
#pragma once

#include <array>
#include <cstdint>

#include "emulator/uses.hpp"

namespace rocm_sd::emu {

// Of one wave. gfx11, gfx12: a WMMA that reads another's result as A or B needs a vector instruction (v_nop)
// between. gfx9: MFMA needs as many wait states as "Manually inserted wait states" of AMD's CDNA ISA
// documents say; numbers as LLVM's hazard recogniser has them, by passes of four cycles. An instruction is
// one wait state, s_nop N is N + 1.
class HazardCheck {
 public:
  void start();
  // Before an instruction runs. Throws KernelFault that says how many wait states are missing.
  void before(const Wave& wave, const Inst& inst, const Uses& uses, const Target& target);
  void after(const Inst& inst, const Uses& uses, const Target& target);

 private:
  struct Last {
    const Inst* by = nullptr;
    uint64_t state = 0;
    Uses::Registers registers;
    uint8_t passes = 0;
    bool is_double = false, is_xdl = false;
  };
  uint32_t since(uint64_t state) const;
  void need(const Wave& wave, const Inst& inst, const Inst& other, uint64_t state, uint32_t states,
            const char* what);
  void mfma_reads(const Wave& wave, const Inst& inst, const Uses& uses, bool gfx90a);
  void others(const Wave& wave, const Inst& inst, const Uses& uses, bool gfx90a);

  uint64_t state_ = 1;
  const Inst* last_wmma_ = nullptr;  // with no vector instruction after it
  Uses::Registers last_wmma_result_;
  Last exec_;
  std::array<Last, kSpareRow> matrix_, vector_, read_as_c_;  // by register: who wrote it, wrote it, read it
};

}  // namespace rocm_sd::emu
