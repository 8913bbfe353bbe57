// Benchmarks as JSON, as columns and as Markdown.
#include <algorithm>

#include "base/error.hpp"

#include <nlohmann/json.hpp>
#include "base/format.hpp"
#include "measurement/bench.hpp"

namespace rocm_sd::measurement {
namespace {

std::string share(const BenchRow& row) {
  return row.roofline_share ? fmt::format("{:.1f}%", 100 * *row.roofline_share) : "";
}
std::string error_of(const BenchRow& row) {
  if (!row.accuracy) return "";
  return fmt::format("{:.1e}{}", row.accuracy->relative_rms, row.accuracy->ok() ? "" : " WRONG");
}
std::string energy(const BenchRow& row) { return row.joules ? fmt::format("{:.3g} J", *row.joules) : ""; }

std::string head(const BenchReport& r) {
  return fmt::format(
      "{}, code {}{}", r.device, r.code,
      r.modelled ? "; times are modelled (docs/explanation/time-model.md), nothing was timed or checked"
      : r.model  ? "; times are bounds from counts, nothing was timed"
                 : "");
}

// The circumstances that a time depends on.
std::string circumstances(const BenchReport& r) {
  if (!r.head.is_object()) return "";
  return fmt::format("driver {}, commit {}, {}; {}\n", r.head.value("driver", ""), r.head.value("commit", ""),
                     r.head.value("date", ""), r.clock_text);
}

bool is_library(const std::string& choice) {
  constexpr std::string_view kLibraries[] = {"cublaslt", "cudnn", "hipblaslt", "rocblas", "miopen", "onednn"};
  return std::ranges::any_of(kLibraries, [&](std::string_view name) { return choice.starts_with(name); });
}

// The fastest candidate of a vendor's library for the row's problem in this run, or null.
const BenchRow* peer_of(const BenchReport& r, const BenchRow& row) {
  const BenchRow* best = nullptr;
  if (!row.chosen || row.seconds.empty() || is_library(row.choice)) return best;
  for (const BenchRow& other : r.rows)
    if (other.op == row.op && other.problem == row.problem && is_library(other.choice) &&
        !other.seconds.empty() && (!best || other.median < best->median))
      best = &other;
  return best;
}

}  // namespace

nlohmann::ordered_json bench_json(const BenchReport& r) {
  nlohmann::ordered_json out = r.head.is_object() ? r.head : nlohmann::ordered_json::object();
  out["device"] = r.device;
  out["code"] = r.code;
  out["origin"] = r.model ? "model" : "measured";
  if (!r.clocks.is_null()) out["clocks"] = r.clocks;
  if (!r.energy_counter.empty()) out["energy_counter"] = r.energy_counter;
  out["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : r.rows) {
    nlohmann::ordered_json j = {{"op", row.op},         {"problem", row.problem},   {"choice", row.choice},
                                {"chosen", row.chosen}, {"launches", row.launches}, {"flops", row.flops},
                                {"bytes", row.bytes}};
    if (!row.failure.empty()) j["failure"] = row.failure;
    if (!row.seconds.empty()) {
      j["median_us"] = row.median * 1e6;
      j["spread"] = row.spread;
      j["samples"] = row.seconds.size();
      j["tflops"] = row.flops / row.median * 1e-12;
      j["gb_per_s"] = row.bytes / row.median * 1e-9;
    }
    if (row.roofline_share) j["roofline_share"] = *row.roofline_share;
    if (row.accuracy)
      j["error"] = {{"ok", row.accuracy->ok()},
                    {"relative_rms", row.accuracy->relative_rms},
                    {"worst_over_tolerance", row.accuracy->worst},
                    {"samples", row.accuracy->samples}};
    if (row.arena_bytes) j["arena_bytes"] = row.arena_bytes;
    if (row.joules) j["joules"] = *row.joules;
    if (row.core_mhz) j["core_mhz"] = *row.core_mhz;
    if (const BenchRow* peer = peer_of(r, row)) {  // above 1: the chosen kernel is faster
      j["peer"] = peer->choice;
      j["ratio_to_peer"] = peer->median / row.median;
    }
    out["rows"].push_back(std::move(j));
  }
  return out;
}

std::string bench_text(const BenchReport& r) {
  std::string out = head(r) + "\n" + circumstances(r);
  std::string last;
  for (const BenchRow& row : r.rows) {
    const std::string problem = concat(row.op, " ", row.problem);
    if (problem != last) out += fmt::format("{} x{:g}\n", problem, row.launches);
    last = problem;
    out += fmt::format("  {} {:<36}", row.chosen ? "*" : " ", row.choice);
    if (!row.seconds.empty())
      out += fmt::format(" {:>11.2f} us +-{:>4.1f}% {:>8.2f} TFLOP/s {:>8.1f} GB/s {:>7}", row.median * 1e6,
                         50 * row.spread, row.flops / row.median * 1e-12, row.bytes / row.median * 1e-9,
                         share(row));
    if (row.accuracy)
      out += fmt::format("  error {}  arena {:.1f} MB {}", error_of(row),
                         static_cast<double>(row.arena_bytes) * 1e-6, energy(row));
    if (!row.failure.empty()) out += " failed: " + row.failure;
    out += "\n";
  }
  return out;
}

std::string bench_markdown(const BenchReport& r) {
  std::string out = head(r) + "\n" + circumstances(r) +
                    "\n| op | problem | choice | us | +- | TFLOP/s | GB/s | roofline | error |\n"
                    "|---|---|---|---:|---:|---:|---:|---:|---:|\n";
  for (const BenchRow& row : r.rows) {
    out += fmt::format("| {} | {} | {}{} |", row.op, row.problem, row.choice, row.chosen ? " *" : "");
    if (!row.seconds.empty())
      out += fmt::format(" {:.2f} | {:.1f}% | {:.2f} | {:.1f} | {} | {} |\n", row.median * 1e6,
                         50 * row.spread, row.flops / row.median * 1e-12, row.bytes / row.median * 1e-9,
                         share(row), error_of(row));
    else
      out += fmt::format(" {} | | | | | {} |\n", row.failure.empty() ? "" : "failed", error_of(row));
  }
  return out;
}

}  // namespace rocm_sd::measurement
