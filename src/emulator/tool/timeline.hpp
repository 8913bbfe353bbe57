// The instructions that the time model issued, as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/launch_time.hpp"

namespace rocm_sd::emu {

// A process for each SIMD, in it a row for each wave and one for each of the SIMD's busy units. A wave's row
// has its instructions, and between them what it waited for. A nanosecond of the trace is a cycle.
class Timeline {
 public:
  static constexpr size_t kMax = 200'000;  // instructions; what comes later is left out

  explicit Timeline(const CodeObject& code) : code_(code) {}
  void add(const Issued& issued) {
    if (issued_.size() < kMax) issued_.push_back(issued);
    ++seen_;
  }
  bool cut() const { return seen_ > kMax; }
  // The trace as JSON (Chrome's trace event format). time: of the launch, which goes into its metadata.
  std::string json(const LaunchTime& time) const;

 private:
  const CodeObject& code_;
  std::vector<Issued> issued_;
  uint64_t seen_ = 0;
};

}  // namespace rocm_sd::emu
