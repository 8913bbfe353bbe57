// What is put around an operation: lane permutation of source 0 (DPP) and a part of the destination (SDWA).
#pragma once

#include "emulator/wave.hpp"

namespace rocm_sd::emu {

// Runs inst.inner with source 0 permuted by inst.lanes and the lanes without a source switched off.
void run_dpp(Wave& wave, const Inst& inst);
// Runs inst.inner, then puts its result into the part of the destination that inst.sdwa_dst names.
void run_sdwa(Wave& wave, const Inst& inst);
// gfx9's index mode: runs inst.inner with the index of m0 added to the VGPRs that m0 names.
void run_indexed(Wave& wave, const Inst& inst);
// Throws KernelFault: not implemented, or not an instruction.
void run_unknown(Wave& wave, const Inst& inst);

}  // namespace rocm_sd::emu
