#include "emulator/report.hpp"

#include <algorithm>
#include <numeric>

namespace rocm_sd::emu {

namespace {

using nlohmann::ordered_json;

constexpr std::string_view kClassNames[kClasses] = {"valu", "trans", "matrix", "salu", "smem",
                                                    "vmem", "lds",   "branch", "wait", "other"};

// Where an instruction stands, and what it is.
ordered_json place(const CodeObject& code, const Inst& inst) {
  ordered_json out;
  out["address"] = inst.address - code.base();
  if (const auto source = code.source_line(inst.address - code.base())) out["source"] = *source;
  out["text"] = code.program().texts[inst.text];
  return out;
}

ordered_json hot_instructions(const Counters& counters, const CodeObject& code) {
  constexpr size_t kListed = 16;
  const auto& executed = counters.executed;
  std::vector<size_t> order(executed.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t listed = std::min(kListed, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(listed), order.end(),
      [&](size_t a, size_t b) { return std::pair(executed[b], a) < std::pair(executed[a], b); });
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < listed && executed[order[i]] > 0; ++i) {
    ordered_json entry = place(code, code.program().code[order[i]]);
    entry["executions"] = executed[order[i]];
    out.push_back(std::move(entry));
  }
  return out;
}

ordered_json global_accesses(const Counters& counters, const CodeObject& code) {
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < counters.memory.size(); ++i) {
    const AccessCount& m = counters.memory[i];
    if (m.executions == 0) continue;
    ordered_json entry = place(code, code.program().code[i]);
    entry["executions"] = m.executions;
    entry["lines64"] = m.lines64;
    entry["lines128"] = m.lines128;
    entry["bytes_useful"] = m.useful;
    entry["bytes_moved64"] = m.lines64 * 64;
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

std::string_view class_name(Class cls) { return kClassNames[static_cast<size_t>(cls)]; }

ordered_json to_json(const Counters& counters, const CodeObject& code, const Kernel& kernel,
                     const Launch& launch) {
  ordered_json out;
  out["kernel"] = kernel.name;
  out["target"] = code.target();
  out["grid"] = {launch.grid.x, launch.grid.y, launch.grid.z};
  out["block"] = {launch.block.x, launch.block.y, launch.block.z};
  out["lds_bytes"] = uint64_t{kernel.lds_bytes} + launch.dynamic_lds;
  out["registers"] = {{"vgpr", kernel.vgprs}, {"agpr", kernel.agprs}, {"sgpr", kernel.sgprs}};
  out["waves"] = counters.waves;
  out["instructions"] = counters.instructions;
  if (counters.executed.empty()) return out;
  for (int c = 0; c < kClasses; ++c)
    out["by_class"][std::string(kClassNames[c])] = counters.by_class[static_cast<size_t>(c)];
  out["hot"] = hot_instructions(counters, code);
  out["memory"] = global_accesses(counters, code);
  return out;
}

}  // namespace rocm_sd::emu
