// A workgroup under way: its waves and their registers, LDS and scratch.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "emulator/executor.hpp"

namespace rocm_sd::emu {

class Recorder;

// "`text` at 0x40 (a.hip:12), group (0, 0, 0) wave 1": for messages.
std::string place_of(const Wave& wave, const Inst& inst);

struct Resident {
  static constexpr uint32_t kRows = kSpareRow + 1;  // of a wave's registers

  // Either observer may be null; all references outlive this.
  Resident(const LaunchPlan& plan, const Options& options, AccessMeter* meter, Recorder* recorder = nullptr);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  // Group `index` of the grid (x first) in the state in which the hardware starts it.
  void start(uint64_t index);
  // The instruction at which a wave waits, or the next one that it runs.
  std::string stand(const Wave& wave) const;

  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  template <class T>
  using Block = std::unique_ptr<T, Free>;

  const LaunchPlan& plan;
  WorkGroup group;
  std::unique_ptr<Checker> check;  // with Options::check
  std::vector<Wave> waves;
  Block<uint32_t> rows;
  Block<uint8_t> lds, scratch;
};

}  // namespace rocm_sd::emu
