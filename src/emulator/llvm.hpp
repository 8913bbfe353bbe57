// The functions of LLVM's disassembler, from its library, which is opened when they are first asked for.
#pragma once

#include <llvm-c/Disassembler.h>

namespace rocm_sd::emu {

struct Llvm {
  decltype(&LLVMCreateDisasmCPUFeatures) create = nullptr;
  decltype(&LLVMDisasmDispose) dispose = nullptr;
  decltype(&LLVMDisasmInstruction) instruction = nullptr;

  // Opened once a process: $ROCM_SD_LLVM_LIBRARY, else the one of the build, else whatever LLVM 19 the loader
  // finds. Throws DeviceError, naming what was tried, where there is none that knows AMD GPUs.
  static const Llvm& library();
};

}  // namespace rocm_sd::emu
