// A card as the time model sees it: share/machines/<card>.json, one number a field, each with where it comes
// from. Latencies of what runs at the shader clock are in its cycles, those of what lies behind the
// second-level cache in nanoseconds.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd::emu {

struct Machine {
  std::string name, target;  // "RX 7900 XTX", "gfx1100"

  double gigahertz = 0;
  double compute_units = 0;
  double simds = 0;           // of a compute unit
  double waves_per_simd = 0;  // at most
  double lds_kib = 0;         // of what shares it: a work-group processor (RDNA), a compute unit (CDNA)
  // Where power limits the clock: what it falls to while matrix units are busy for the given share of the
  // time. Both 0: it does not.
  double limited_gigahertz = 0, limited_share = 0;

  // Cycles.
  double issue = 0;           // from one instruction of a wave to its next
  double vector_latency = 0;  // until a result may be read
  double trans_latency = 0;   // exp, rcp, ...
  double scalar_latency = 0;  // of the scalar unit
  double matrix_latency = 0;  // after the last pass, until another unit reads the result
  double branch_latency = 0;  // until a wave goes on behind a branch that was taken
  double scalar_load = 0;     // of a scalar load that hits
  double lds_latency = 0;     // until data is back, with LDS idle
  double l0_latency = 0;      // the same of the vector cache of a compute unit
  double barrier = 0;         // from the last wave's arrival to the first that goes on
  double group_start = 0;     // from a free place to the first instruction there
  double queue = 0;           // cycles of work that LDS or the vector cache take ahead
  double l0_kib = 0;          // of a compute unit
  double lds_bytes = 0;       // a cycle and compute unit, as the next two
  double l0_bytes = 0;        // from the vector cache
  double request_bytes = 0;   // from the second-level cache into a vector cache
  double l2_bytes = 0;        // a cycle, of all second-level caches together
  double l2_mb = 0, l2s = 0;  // of all together; how many there are
  double l2_latency = 0;      // nanoseconds, as all below
  double last_level_mb = 0;   // Infinity Cache; 0: none
  double last_level_gb = 0;   // GB/s
  double last_level_latency = 0;
  double memory_gb = 0;  // GB/s that a good kernel reaches
  double memory_latency = 0;
  double launch_us = 0;  // from the end of a launch to the start of the next, microseconds
};

// Where a number comes from.
struct MachineFigure {
  std::string field, kind, source;  // kind: "published", "derived", "assumed"
  double value = 0;
};

struct MachineFile {
  Machine machine;
  std::vector<MachineFigure> figures;
};

// Throws FormatError naming the field that is missing, unknown, out of range or without a source.
MachineFile machine_from_json(const nlohmann::json& json, std::string_view what);
// Throws FileError where it cannot be read, too.
MachineFile read_machine(const std::filesystem::path& path);

// All of share/machines, by name. Throws as read_machine.
std::vector<MachineFile> machines();
// The card of this name (upper and lower case and blanks alike), or the first one of a target ("gfx1100").
// Throws UsageError naming those that there are.
Machine find_machine(std::string_view name_or_target);

}  // namespace rocm_sd::emu
