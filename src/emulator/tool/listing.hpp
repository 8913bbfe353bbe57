// Texts about code objects: their kernels, and their disassembly with what ran how often.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "emulator/gpu.hpp"

namespace rocm_sd::emu {

// What a code object says of its kernels, as JSON and as text.
nlohmann::ordered_json kernels_json(const CodeImage& image);
std::string kernels_text(const CodeImage& image);

// The disassembly of a kernel with offsets in the image and source lines; counts, if any, are those of
// Counters::executed. Where the object does not say how long the kernel is: of all its code.
std::string disassembly(const CodeObject& code, const Kernel& kernel, std::span<const uint64_t> executed);

// Where to stop: "0x1a40" is an offset in the image, "12" or "a.hip:12" a source line. Offsets of
// instructions; throws UsageError where there is none.
std::vector<uint64_t> find_places(const CodeObject& code, const std::string& text);

}  // namespace rocm_sd::emu
