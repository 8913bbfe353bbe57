#include "measurement/stopwatch.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/format.hpp"

namespace rocm_sd::measurement {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCountVariable = "ROCM_SD_EMULATOR_COUNT";
constexpr const char* kTimeVariable = "ROCM_SD_EMULATOR_TIME";

// Wall time, or CPU time per thread where that is less: other processes on the machine do not count.
class HostStopwatch final : public Stopwatch {
 public:
  double time(Program& program, Caches caches) override {
    constexpr size_t kBytes = 64 << 20;  // more than most last-level caches hold for a process
    if (caches == Caches::kCold) {
      flush_.resize(kBytes);
      std::memset(flush_.data(), ++value_, flush_.size());
    }
    const double cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    program.run();
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::min(wall, std::max((cpu_seconds() - cpu) / host_threads(), 1e-9));
  }

 private:
  static double cpu_seconds() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  }

  std::vector<char> flush_;
  char value_ = 0;
};

class GpuStopwatch final : public Stopwatch {
 public:
  explicit GpuStopwatch(GpuDevice& device)
      : device_(device), begin_(device.make_event()), end_(device.make_event()) {}

  double time(Program& program, Caches caches) override {
    // Clearing takes the device longer than the host needs to ask for what follows, so that the events have
    // nothing but the run between them.
    const size_t least = size_t{64} << 20;
    if (caches == Caches::kCold) {
      if (!flush_)
        flush_ = make_tensor(device_, {static_cast<int64_t>(std::max(least, 2 * device_.traits().l2_bytes))},
                             DType::kU8);
      device_.fill_zero(flush_.data(), flush_.bytes());
    }
    begin_->record();
    program.run();
    end_->record();
    return end_->milliseconds_since(*begin_) * 1e-3;
  }

 private:
  GpuDevice& device_;
  std::unique_ptr<GpuEvent> begin_, end_;
  Tensor flush_;
};

// The modelled time of each launch where ROCM_SD_EMULATOR_TIME is set; else the bound of its counts: the unit
// that its instructions keep busiest, on the compute unit that gets most workgroups, or every distinct line
// crossing the memory once; and a start for each launch.
class EmulatedStopwatch final : public Stopwatch {
 public:
  explicit EmulatedStopwatch(GpuDevice& device) : device_(device) {
    const char* file = std::getenv(kTimeVariable);
    times_ = file && *file;
    if (!times_) file = std::getenv(kCountVariable);
    require<UsageError>(file && *file, "emulated GPUs: their counts are needed in place of times, set ",
                        kCountVariable, " to a file before the device is opened");
    path_ = file;
  }

  double time(Program& program, Caches) override {
    std::error_code none;
    const auto before = fs::exists(path_, none) ? fs::file_size(path_) : 0;
    program.run();
    std::ifstream file(path_);
    file.seekg(static_cast<std::streamoff>(before));
    double seconds = 0;
    size_t launches = 0;
    for (std::string line; std::getline(file, line); ++launches)
      seconds += launch_seconds(nlohmann::json::parse(line));
    require<UsageError>(launches > 0, device_.name(), ": counted nothing; it was opened before ",
                        kCountVariable, " was set");
    return seconds;
  }
  bool varies() const override { return false; }
  bool is_model() const override { return true; }
  bool leaves_results() const override { return !times_; }

 private:
  double launch_seconds(const nlohmann::json& counts) const {
    if (times_) return counts.at("microseconds").get<double>() * 1e-6;
    constexpr double kStart = 4e-6;  // of a launch: what drivers' own benchmarks show, rounded
    const nlohmann::json& bound = counts.at("bound");
    const double units = bound.at("card_unit_cycles"), memory = bound.at("card_memory_cycles");
    const double groups = counts.at("grid")[0].get<double>() * counts.at("grid")[1].get<double>() *
                          counts.at("grid")[2].get<double>();
    const double compute_units = std::max(1, device_.traits().compute_units);
    const double busiest = std::ceil(groups / compute_units) * compute_units / std::max(groups, 1.0);
    const double cycles = std::max(units, memory), microseconds = bound.at("microseconds");
    const double per_cycle = cycles > 0 ? microseconds * 1e-6 / cycles : 0;
    return kStart + std::max(units * busiest, memory) * per_cycle;
  }

  GpuDevice& device_;
  fs::path path_;
  bool times_ = false;  // the file holds times, not counts
};

// A file that goes with the process.
struct CountFile {
  fs::path path;
  CountFile()
      : path(fs::temp_directory_path() / fmt::format("rocm-sd-counts.{:08x}", std::random_device{}())) {}
  ~CountFile() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

}  // namespace

std::unique_ptr<Stopwatch> make_stopwatch(Device& device) {
  if (device.kind() == DeviceKind::kHost) return std::make_unique<HostStopwatch>();
  auto& gpu = static_cast<GpuDevice&>(device);
  if (device.kind() == DeviceKind::kEmulator) return std::make_unique<EmulatedStopwatch>(gpu);
  return std::make_unique<GpuStopwatch>(gpu);
}

void count_emulated_launches() {
  if (std::getenv(kCountVariable) || std::getenv(kTimeVariable)) return;
  static const CountFile file;
  setenv(kCountVariable, file.path.c_str(), 1);
}

}  // namespace rocm_sd::measurement
