#include "emulator/report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "emulator/analysis.hpp"

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

ordered_json accesses(const Counters& counters, const CodeObject& code) {
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < counters.memory.size(); ++i) {
    const AccessCount& m = counters.memory[i];
    if (m.executions == 0 && m.lds_cycles == 0) continue;
    ordered_json entry = place(code, code.program().code[i]);
    entry["executions"] = counters.executed[i];
    if (m.executions > 0) {
      entry["lines64"] = m.lines64;
      entry["lines128"] = m.lines128;
      entry["bytes_useful"] = m.useful;
      entry["bytes_moved64"] = m.lines64 * 64;
      entry["bytes_moved128"] = m.lines128 * 128;
    }
    if (m.lds_cycles > 0) {
      entry["lds_bytes"] = m.lds_bytes;
      entry["lds_cycles"] = m.lds_cycles;
      entry["lds_conflict_cycles"] = m.lds_conflicts;
    }
    out.push_back(std::move(entry));
  }
  return out;
}

ordered_json classes(const ClassCounts& counts) {
  ordered_json out = ordered_json::object();
  for (size_t i = 0; i < counts.size(); ++i) out[std::string(kClassNames[i])] = counts[i];
  return out;
}

ordered_json units(const UnitCycles& u, const CardRates& r) {
  return {{"matrix", u.matrix},  {"vector", u.vector},  {"transcendental", u.transcendental},
          {"scalar", u.scalar},  {"lds", u.lds},        {"memory", u.memory},
          {"bound", u.bound(r)}, {"limit", u.limit(r)}, {"matrix_share", u.matrix_share(r)}};
}

ordered_json blocks(const Analysis& a, const CodeObject& code) {
  ordered_json out = ordered_json::array();
  for (const BasicBlock& b : a.blocks) {
    ordered_json entry = place(code, code.program().code[b.first]);
    entry["last"] = code.program().code[b.last].address - code.base();
    entry["executions"] = b.executions;
    entry["instructions"] = classes(b.once);
    out.push_back(std::move(entry));
  }
  return out;
}

// What follows from the counts.
void add_analysis(ordered_json& out, const Analysis& a, const Counters& counters, const CodeObject& code) {
  const CardRates& r = *a.rates;
  AccessCount all;
  for (const AccessCount& m : counters.memory) all += m;
  out["card"] = r.card->name;
  out["global"] = {{"lines64", all.lines64},
                   {"lines128", all.lines128},
                   {"bytes_useful", all.useful},
                   {"distinct_bytes_read", 64 * counters.distinct.read},
                   {"distinct_bytes_written", 64 * counters.distinct.written}};
  out["lds"] = {{"bytes", all.lds_bytes}, {"cycles", all.lds_cycles}, {"conflict_cycles", all.lds_conflicts}};
  out["occupancy"] = {{"registers", a.occupancy.registers},
                      {"waves_per_simd", a.occupancy.waves},
                      {"by_registers", a.occupancy.by_registers},
                      {"by_lds", a.occupancy.by_lds}};
  out["cycles"] = units(a.cycles, r);
  ordered_json& loop = out["hottest_loop"] = place(code, code.program().code[a.hottest.header]);
  loop["turns"] = a.hottest.turns;
  loop["blocks"] = a.hottest.blocks;
  loop["instructions"] = classes(a.hottest.executed);
  loop["cycles"] = units(a.hottest.cycles, r);
  out["bound"] = {
      {"group_cycles", a.group_cycles},
      {"card_unit_cycles", a.card_unit_cycles},
      {"card_memory_cycles", a.card_memory_cycles},
      {"microseconds", std::max(a.card_unit_cycles, a.card_memory_cycles) / (r.card->gigahertz * 1e3)}};
  out["blocks"] = blocks(a, code);
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
  out["by_class"] = classes(counters.by_class);
  out["hot"] = hot_instructions(counters, code);
  out["memory"] = accesses(counters, code);
  add_analysis(out, analyse(code, kernel.name, launch, counters), counters, code);
  return out;
}

}  // namespace rocm_sd::emu
