// What one run of a program takes on a device: by events on a GPU, by clocks on the host, by counts on an
// emulated GPU.
#pragma once

#include <filesystem>
#include <memory>

#include "runtime/exec.hpp"

namespace rocm_sd::measurement {

enum class Caches {
  kCold,  // what the run before left in them is written over first
  kAsIs,
};

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  // Runs the planned program once; seconds. Throws what the run throws.
  virtual double time(Program& program, Caches caches) = 0;
  // Whether times differ from run to run, so that more than one is worth taking.
  virtual bool varies() const { return true; }
  // Times are bounds from counts: nothing about any card's clock.
  virtual bool is_model() const { return false; }
  // Whether a run leaves its results in memory: not where launches are modelled in place of being run.
  virtual bool leaves_results() const { return true; }
};

// Of the device's kind. An emulated GPU must have been opened with ROCM_SD_EMULATOR_COUNT set
// (count_emulated_launches) or with ROCM_SD_EMULATOR_TIME; UsageError otherwise.
std::unique_ptr<Stopwatch> make_stopwatch(Device& device);

// Makes emulated GPUs that are opened from here on count, into a file of this process that goes when it ends.
void count_emulated_launches();

}  // namespace rocm_sd::measurement
