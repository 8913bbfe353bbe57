// Running a launch: the initial state of waves, and their turns.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "emulator/gpu.hpp"

namespace rocm_sd::emu {

// All that the waves of a launch have in common.
class LaunchPlan {
 public:
  // Checks the launch against the kernel; throws UsageError. References must outlive the plan.
  LaunchPlan(const Program& program, uint64_t base, const Kernel& kernel, const Launch& launch,
             std::span<const std::byte> kernarg, Memory& memory, uint32_t stack_bytes = 0);
  ~LaunchPlan();
  LaunchPlan(const LaunchPlan&) = delete;
  LaunchPlan& operator=(const LaunchPlan&) = delete;

  uint64_t groups() const { return uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z; }
  // Registers of wave `index` of a group as the hardware sets them up; the rest holds a pattern that is no
  // number.
  void start_wave(Wave& wave, uint32_t index) const;

  const Program& program;
  const Kernel& kernel;
  const Launch launch;
  const Inst* entry = nullptr;
  uint64_t base = 0;
  uint32_t lanes = 32, threads = 1, waves = 1;  // lanes of a wave; threads and waves of a group
  uint32_t lds_bytes = 0, scratch_bytes = 0;    // of a group; of a lane
  uint32_t vgprs = 256, accumulators = 0;       // rows to set up
  std::vector<Range> ranges;

 private:
  bool preloads() const;
  void fill_hidden();
  void write_packet();
  void user_scalars(Wave& wave) const;

  Memory& memory_;
  std::vector<std::byte> arguments_;
  std::span<std::byte> kernarg_;  // in arguments_, aligned
  std::vector<std::byte> packet_;
};

Counters run(const LaunchPlan& plan, const Options& options);

}  // namespace rocm_sd::emu
