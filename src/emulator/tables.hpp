// The operations of this machine's x86 level, by name.
#pragma once

#include <string_view>

#include "emulator/wave.hpp"

namespace rocm_sd::emu {

// Null if nothing of that name is implemented.
const Operation* find_operation(std::string_view name);

}  // namespace rocm_sd::emu
