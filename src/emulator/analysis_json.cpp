// The counts of a launch as JSON.
#include <nlohmann/json.hpp>

#include "emulator/analysis.hpp"

namespace rocm_sd::emu {

namespace {

using Json = nlohmann::ordered_json;

Json classes(const ClassCounts& counts) {
  Json out = Json::object();
  for (size_t i = 0; i < counts.size(); ++i) out[std::string(class_name(static_cast<Class>(i)))] = counts[i];
  return out;
}

Json units(const UnitCycles& u, const CardRates& r) {
  return {{"matrix", u.matrix},  {"vector", u.vector},  {"transcendental", u.transcendental},
          {"scalar", u.scalar},  {"lds", u.lds},        {"memory", u.memory},
          {"bound", u.bound(r)}, {"limit", u.limit(r)}, {"matrix_share", u.matrix_share(r)}};
}

Json accesses(const CodeObject& code, const Counters& counters) {
  const Program& program = code.program();
  Json out = Json::array();
  for (size_t i = 0; i < counters.memory.size(); ++i) {
    const AccessCount& m = counters.memory[i];
    if (m.executions == 0 && m.lds_cycles == 0) continue;
    const Inst& in = program.code[i];
    Json row = {{"address", in.address - code.base()},
                {"text", printable(program.texts[in.text])},
                {"executions", counters.executed[i]}};
    if (m.executions > 0)
      row["global"] = {{"lines64", m.lines64},
                       {"lines128", m.lines128},
                       {"bytes_useful", m.useful},
                       {"bytes_moved64", 64 * m.lines64},
                       {"bytes_moved128", 128 * m.lines128}};
    if (m.lds_cycles > 0)
      row["lds"] = {{"bytes", m.lds_bytes}, {"cycles", m.lds_cycles}, {"conflict_cycles", m.lds_conflicts}};
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace

std::string to_json(const Analysis& a, const CodeObject& code, const Counters& counters, int indent) {
  const Program& program = code.program();
  const CardRates& r = *a.rates;
  const auto address = [&](uint32_t i) { return program.code[i].address - code.base(); };
  AccessCount all;
  for (const AccessCount& m : counters.memory) all += m;
  Json blocks = Json::array();
  for (const BasicBlock& b : a.blocks)
    blocks.push_back({{"first", address(b.first)},
                      {"last", address(b.last)},
                      {"executions", b.executions},
                      {"instructions", classes(b.once)}});
  const Json out = {
      {"kernel", a.kernel},
      {"target", a.target},
      {"card", r.product},
      {"groups", a.groups},
      {"waves", counters.waves},
      {"lanes", a.lanes},
      {"instructions", counters.instructions},
      {"by_class", classes(counters.by_class)},
      {"global",
       {{"lines64", all.lines64},
        {"lines128", all.lines128},
        {"bytes_useful", all.useful},
        {"distinct_bytes_read", 64 * counters.distinct.read},
        {"distinct_bytes_written", 64 * counters.distinct.written}}},
      {"lds", {{"bytes", all.lds_bytes}, {"cycles", all.lds_cycles}, {"conflict_cycles", all.lds_conflicts}}},
      {"occupancy",
       {{"registers", a.occupancy.registers},
        {"lds_bytes", a.occupancy.lds_bytes},
        {"waves_per_simd", a.occupancy.waves},
        {"by_registers", a.occupancy.by_registers},
        {"by_lds", a.occupancy.by_lds}}},
      {"cycles", units(a.cycles, r)},
      {"hottest_loop",
       {{"header", address(a.hottest.header)},
        {"blocks", a.hottest.blocks},
        {"turns", a.hottest.turns},
        {"instructions", classes(a.hottest.executed)},
        {"cycles", units(a.hottest.cycles, r)}}},
      {"bound",
       {{"group_cycles", a.group_cycles},
        {"card_unit_cycles", a.card_unit_cycles},
        {"card_memory_cycles", a.card_memory_cycles},
        {"microseconds", std::max(a.card_unit_cycles, a.card_memory_cycles) / (r.ghz * 1e3)}}},
      {"accesses", accesses(code, counters)},
      {"blocks", blocks}};
  return out.dump(indent);
}

}  // namespace rocm_sd::emu
