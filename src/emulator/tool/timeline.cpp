#include "emulator/tool/timeline.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "emulator/gpu.hpp"
#include "emulator/report.hpp"

namespace rocm_sd::emu {

namespace {

using nlohmann::ordered_json;

// Rows below a SIMD: its units, then waves.
constexpr uint32_t kVectorRow = 1, kTransRow = 2, kMatrixRow = 3, kFirstWave = 16, kWavesOfGroup = 64;

ordered_json event(const char* kind, std::string name, uint32_t simd, uint32_t row) {
  return {{"name", std::move(name)}, {"ph", kind}, {"pid", simd}, {"tid", row}};
}
ordered_json slice(std::string name, uint32_t simd, uint32_t row, double from, double cycles) {
  ordered_json out = event("X", std::move(name), simd, row);
  out["ts"] = from / 1e3;
  out["dur"] = cycles / 1e3;
  return out;
}
void name_row(ordered_json& events, uint32_t simd, uint32_t row, const std::string& name) {
  ordered_json out = event("M", "thread_name", simd, row);
  out["args"] = {{"name", name}};
  events.push_back(std::move(out));
  out = event("M", "thread_sort_index", simd, row);
  out["args"] = {{"sort_index", row}};
  events.push_back(std::move(out));
}
uint32_t unit_row(Class cls) {
  switch (cls) {
    case Class::kValu: return kVectorRow;
    case Class::kTrans: return kTransRow;
    case Class::kMatrix: return kMatrixRow;
    default: return 0;
  }
}

}  // namespace

std::string Timeline::json(const LaunchTime& time) const {
  const Program& program = code_.program();
  ordered_json events = ordered_json::array();
  std::map<std::pair<uint32_t, uint32_t>, double> rows;  // named ones, and when their last slice ends
  // A wave's instruction ends at the latest where its next one could issue.
  std::map<std::pair<uint32_t, uint32_t>, size_t> next_of;
  std::vector<double> ends(issued_.size());
  for (size_t i = issued_.size(); i-- > 0;) {
    const Issued& e = issued_[i];
    const std::pair wave(e.group, e.wave);
    const auto next = next_of.find(wave);
    ends[i] = next == next_of.end() ? e.at + e.busy : issued_[next->second].from;
    next_of[wave] = i;
  }
  const auto row_of = [&](uint32_t simd, uint32_t row, const std::string& name) -> double& {
    const auto [at, is_new] = rows.try_emplace({simd, row}, -1.0);
    if (is_new) name_row(events, simd, row, name);
    return at->second;
  };
  for (size_t i = 0; i < issued_.size(); ++i) {
    const Issued& e = issued_[i];
    const Inst& in = program.code[e.inst];
    const std::string text = printable(program.texts[in.text]);
    const std::string name = text.substr(0, text.find_first_of(" \t"));
    const uint32_t row = kFirstWave + e.group * kWavesOfGroup + e.wave;
    row_of(e.simd, row, concat("group ", e.group, " wave ", e.wave));
    if (e.at > e.from)
      events.push_back(slice(concat("stall: ", stall_name(e.why)), e.simd, row, e.from, e.at - e.from));
    ordered_json issue = slice(name, e.simd, row, e.at, std::max(ends[i] - e.at, 0.0));
    issue["cat"] = class_name(in.cls);
    issue["args"] = {
        {"text", text}, {"address", fmt::format("{:#x}", in.address - code_.base())}, {"cycle", e.at}};
    if (const auto source = code_.source_line(in.address - code_.base())) issue["args"]["source"] = *source;
    events.push_back(std::move(issue));
    if (const uint32_t unit = unit_row(in.cls)) {
      double& end = row_of(e.simd, unit,
                           unit == kVectorRow  ? "vector unit"
                           : unit == kTransRow ? "transcendental unit"
                                               : "matrix unit");
      const double from = std::max(e.at, end);
      events.push_back(slice(name, e.simd, unit, from, std::max(e.at + e.busy - from, 0.0)));
      end = e.at + e.busy;
    }
  }
  std::vector<uint32_t> simds;
  for (const auto& [row, end] : rows)
    if (simds.empty() || simds.back() != row.first) simds.push_back(row.first);
  for (const uint32_t simd : simds) {
    ordered_json out = event("M", "process_name", simd, 0);
    out["args"] = {{"name", concat("SIMD ", simd)}};
    events.push_back(std::move(out));
  }
  const ordered_json all = {
      {"displayTimeUnit", "ns"},
      {"otherData",
       {{"about", "modelled, not measured: one nanosecond is one cycle of the shader clock"},
        {"cut", cut()},
        {"launch", to_json(time)}}},
      {"traceEvents", std::move(events)}};
  return all.dump();
}

}  // namespace rocm_sd::emu
