// What a launch counted, as JSON: the one form that the tool, `predict` and the kernel report read.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "emulator/gpu.hpp"

namespace rocm_sd::emu {

// The name of a class of instructions: "valu", "trans", "matrix", ...
std::string_view class_name(Class cls);

// {"kernel", "target", "grid", "block", "lds_bytes", "registers", "waves", "instructions", "by_class", and
// with Options::count "hot" (the instructions that ran most), "memory" (accesses by instruction), and what
// analysis.hpp makes of them: "card", "global", "lds", "occupancy", "cycles", "hottest_loop", "bound",
// "blocks"}.
nlohmann::ordered_json to_json(const Counters& counters, const CodeObject& code, const Kernel& kernel,
                               const Launch& launch);

}  // namespace rocm_sd::emu
