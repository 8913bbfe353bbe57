// The time of a launch on a card, modelled: a processor's time (timing.hpp) for the groups that the busiest
// one gets, its share of the card's caches and memory, and the gap between launches. Groups go to processors
// in turn (to dies in turn, where a card has several, as AMD's documentation says of MI300X).
//
// How much of the data comes from how far away follows from what groups that run at once touch: all of them
// are run for their first accesses, and the distinct lines are counted by processor, by second-level cache
// and for the card. Docs: docs/explanation/time-model.md.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "emulator/timing.hpp"

namespace rocm_sd::emu {

struct TimeOptions {
  // The data is in the last-level cache (or the second-level one) as far as it fits, as in benchmarks that
  // launch the same again and again; else every line comes from memory once.
  bool warm = false;
  uint32_t recorded = 4;  // groups that are run to their end, at most; more of a processor repeat them
  IssueWatch watch;       // of the groups that are played last
};

struct LaunchTime {
  double seconds = 0;        // with the gap before the launch
  double bound_seconds = 0;  // what the busiest unit or the memory takes alone, without any wait
  double gigahertz = 0;      // lower than the boost clock where power limits it
  uint64_t groups = 0;
  uint32_t processors = 0;
  uint32_t resident = 0;  // groups of a processor at once
  uint32_t waves_per_simd = 0;
  double groups_each = 0;   // of the busiest processor
  double group_cycles = 0;  // from one group's end to the next, on one processor
  double cycles = 0;        // of the busiest processor
  double memory_bytes = 0;  // that cross the card's memory
  ProcessorTime processor;  // of the groups that were played
  MemoryShare share;
  // The busiest unit of the processor, and the share of the time that it is busy.
  std::string busiest;
  double busy = 0;
};

// Runs some groups of the plan, with all that they do to memory, and models the launch. Throws UsageError for
// a machine of another family and for groups that wait for each other, KernelFault as a launch does.
LaunchTime time_launch(const LaunchPlan& plan, const Machine& machine, const TimeOptions& options);

// {"microseconds", "bound_microseconds", ..., "stalls": shares of the waves' time by reason}.
nlohmann::ordered_json to_json(const LaunchTime& time);

}  // namespace rocm_sd::emu
