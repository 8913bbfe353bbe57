// The lane patterns of DPP modifiers and of ds_swizzle, from their text.
#pragma once

#include <optional>

#include "emulator/disassemble.hpp"
#include "emulator/wave.hpp"

namespace rocm_sd::emu {

// False: a pattern that is not known.
bool lane_map(const Assembly& parts, LaneMap& out);

// swizzle(BROADCAST,8,0) -> the 16-bit control of ds_swizzle_b32.
std::optional<int32_t> swizzle_control(std::string_view text);

}  // namespace rocm_sd::emu
