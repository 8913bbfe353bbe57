// Assembly to the compact form that the interpreter runs.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "emulator/program.hpp"

namespace rocm_sd::emu {

// Translates the code sections of a loaded image; `base` is the host address of its first byte. An
// instruction that is not implemented, or bytes that do not decode, become an instruction that faults when it
// runs.
Program translate(std::span<const std::byte> image, uint64_t base,
                  std::span<const std::pair<uint64_t, uint64_t>> sections, const Target& target);

// Whether an operation is implemented, by its folded name (operation_name()).
bool is_implemented(std::string_view name);

}  // namespace rocm_sd::emu
