// The lists of operations that the handler files give, for the x86 level ROCM_SD_ISA.
#pragma once

#include "emulator/lanes.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {

Operations valu_float();
Operations valu_integer();
Operations valu_convert();
Operations valu_compare();
Operations valu_packed();
Operations valu_lane();
Operations matrix_wmma();
Operations matrix_mfma();

}  // namespace ROCM_SD_ISA

// Compiled once: they are not loops over lanes, or memory bounds them.
Operations scalar_operations();
Operations scalar_float_operations();
Operations control_operations();
Operations scalar_memory_operations();
Operations vector_memory_operations();
Operations atomic_operations();
Operations lds_operations();
Operations indexed_operations();

}  // namespace rocm_sd::emu
