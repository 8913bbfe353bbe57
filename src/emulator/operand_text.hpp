// Operands as the disassembler writes them, resolved to registers and constants.
#pragma once

#include <optional>
#include <string_view>

#include "emulator/wave.hpp"

namespace rocm_sd::emu {

// "-|v3|", "s[4:5]", "vcc_lo", "0x3f800000", "1.0": a constant's bits are those of an operand of `type` (kF64
// literals stand for the high half, floats are f16, f32 or f64). No value: not an operand that is known.
std::optional<Operand> parse_operand(std::string_view text, Type type);

// A decimal or 0x number with an optional sign.
std::optional<int64_t> parse_integer(std::string_view text);

}  // namespace rocm_sd::emu
