#include "emulator/llvm.hpp"

#include <string>

#include "base/dynamic_library.hpp"
#include "base/error.hpp"

namespace rocm_sd::emu {
namespace {

struct Opened {
  Llvm functions;
  std::string problem;

  Opened() {
    const auto file = DynamicLibrary::chosen_by(
        "ROCM_SD_LLVM_LIBRARY",
        {ROCM_SD_LLVM_LIBRARY, "libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-19.so"});
    if (!file) {
      problem = file.problem();
      return;
    }
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(file.symbol(name));
      if (!function && problem.empty()) problem = concat(file.name(), " has no ", name);
    };
    find(functions.create, "LLVMCreateDisasmCPUFeatures");
    find(functions.dispose, "LLVMDisasmDispose");
    find(functions.instruction, "LLVMDisasmInstruction");
    for (const char* name : {"LLVMInitializeAMDGPUTargetInfo", "LLVMInitializeAMDGPUTargetMC",
                             "LLVMInitializeAMDGPUDisassembler"}) {
      void (*initialize)() = nullptr;
      find(initialize, name);
      if (problem.empty()) initialize();
    }
  }
};

}  // namespace

const Llvm& Llvm::library() {
  static const Opened opened;
  require<DeviceError>(opened.problem.empty(),
                       "the emulated GPU needs LLVM 19's library (libllvm19): ", opened.problem);
  return opened.functions;
}

}  // namespace rocm_sd::emu
