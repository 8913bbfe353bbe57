// AMD GPUs in software: src/emulator behind the calls of a driver. Everything has happened when a call
// returns.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <thread>

#include "base/error.hpp"
#include "base/gpu_products.hpp"
#include "base/log.hpp"
#include "runtime/gpu_driver.hpp"
#ifdef ROCM_SD_WITH_EMULATOR
#include "emulator/gpu.hpp"
#include "emulator/launch_time.hpp"
#include "emulator/rates.hpp"
#include "emulator/report.hpp"
#endif

namespace rocm_sd {

#ifdef ROCM_SD_WITH_EMULATOR
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLdsBytes = 64 << 10;

// The card that stands for a target that is a device; null for others.
const GpuProduct* card_of(const emu::CardRates& rates) {
  return rates.card->arch == rates.target ? rates.card : nullptr;
}

GpuDescription describe(const GpuProduct& gpu) {
  const GpuFamily family = gpu_family(gpu.arch).value();
  return {.kind = DeviceKind::kEmulator,
          .device = concat("emu:", gpu.arch),
          .product = concat("emulated ", gpu.name),
          .traits = {.arch = gpu.arch,
                     .family = family,
                     .lanes = wave_lanes(family),
                     .compute_units = driver_compute_units(gpu),
                     .lds_per_group = kLdsBytes,
                     .l2_bytes = static_cast<size_t>(gpu.l2_mb * (1 << 20)),
                     .integrated = gpu.arch.starts_with("gfx115")},
          .memory_bytes = static_cast<uint64_t>(gpu.memory_gb * (1 << 30)),
          .targets = {gpu.arch}};
}

// A file to which each launch's counts are appended, a line of JSON each.
constexpr const char* kCountVariable = "ROCM_SD_EMULATOR_COUNT";

// A file to which each launch's modelled time is appended, likewise; launches are then not run but for the
// groups that the model needs, and results are of no use. The card: a name of share/machines.
constexpr const char* kTimeVariable = "ROCM_SD_EMULATOR_TIME";
constexpr const char* kMachineVariable = "ROCM_SD_EMULATOR_MACHINE";

// DEVICE:LAUNCH, for tests: of the emulated GPUs that this process opens the DEVICE-th (from 0 on) never
// comes back from its LAUNCH-th launch, as a card that hangs.
constexpr const char* kHangVariable = "ROCM_SD_EMULATOR_HANG";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

emu::Options options_from_environment() {
  emu::Options options{.threads = host_threads()};
  const std::string check = environment("ROCM_SD_EMULATOR_CHECK");
  require<UsageError>(check.empty() || check == "0" || check == "1",
                      "ROCM_SD_EMULATOR_CHECK: expected 0 or 1, got ", printable(check));
  options.check = check == "1";
  options.count = !environment(kCountVariable).empty();
  return options;
}

// The launch that the next GPU is to hang in; 0: none.
int64_t hanging_launch() {
  static std::atomic<int> opened = 0;
  const int device = opened++;
  const std::string asked = environment(kHangVariable);
  if (asked.empty()) return 0;
  int wanted = 0;
  long long launch = 0;
  char rest = 0;
  require<UsageError>(std::sscanf(asked.c_str(), "%d:%lld%c", &wanted, &launch, &rest) == 2 && launch > 0,
                      kHangVariable, ": expected DEVICE:LAUNCH, such as 1:200, got ", printable(asked));
  return device == wanted ? launch : 0;
}

struct EmulatedFunction {
  emu::CodeObject code;
  std::string name;
};
// Functions live as long as their module.
struct EmulatedModule {
  emu::CodeObject code;
  std::vector<std::unique_ptr<EmulatedFunction>> functions;
};
using Recording = std::vector<std::function<void()>>;

class EmulatorDriver final : public GpuDriver {
 public:
  explicit EmulatorDriver(const GpuProduct& gpu)
      : description_(describe(gpu)), gpu_(gpu.arch, options_from_environment()) {
    if (environment(kTimeVariable).empty()) return;
    const std::string name = environment(kMachineVariable);
    machine_ = emu::find_machine(name.empty() ? gpu.name : name);
    description_.traits.samples_groups = true;
    // Plans and tables are those of the card that is modelled.
    if (const GpuProduct* card = find_gpu_product(machine_->name))
      description_.traits.compute_units = driver_compute_units(*card);
  }

  const GpuDescription& description() const override { return description_; }
  void make_current() override {}
  // The card's memory, as far as the host has it.
  MemoryInfo memory() override {
    const uint64_t total = description_.memory_bytes;
    return {total, std::min(total - std::min(total, allocated_), host_device().memory().free)};
  }

  bool exact_blocks() const override { return true; }
  void* allocate(size_t bytes) override {
    if (bytes > memory().free) return nullptr;
    void* data = gpu_.allocate_watched(bytes);
    sizes_[data] = bytes;
    allocated_ += bytes;
    return data;
  }
  void free(void* data) noexcept override {
    const auto found = sizes_.find(data);
    if (found == sizes_.end()) return;
    allocated_ -= found->second;
    sizes_.erase(found);
    gpu_.free(data);
  }
  void* allocate_pinned(size_t) override { return nullptr; }  // copies need no staging
  void free_pinned(void* data) noexcept override {
    gpu_.forget(data);
    std::free(data);
  }
  void* allocate_coherent(size_t bytes) override {
    constexpr size_t kPage = 4096;
    void* data = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    if (data) gpu_.admit(data, bytes);
    return data;
  }
  std::string reach(GpuDriver&) override { return ""; }
  void admit(const void* data, size_t bytes) override { gpu_.admit(data, bytes); }
  void forget(const void* data) noexcept override { gpu_.forget(data); }

  void copy_to_device_async(void* dst, const void* src, size_t bytes) override {
    run("copy to the device", [&] { gpu_.write(dst, src, bytes); });
  }
  void copy_beside_async(void* dst, const void* src, size_t bytes) override {
    do_or_record([this, dst, src, bytes] { copy_to_device_async(dst, src, bytes); });
  }
  void copy_to_host_async(void* dst, const void* src, size_t bytes) override {
    run("copy to the host", [&] { gpu_.read(dst, src, bytes); });
  }
  void copy_on_device_async(void* dst, const void* src, size_t bytes) override {
    do_or_record([this, dst, src, bytes] { run("copy", [&] { gpu_.copy(dst, src, bytes); }); });
  }
  void admit_any_content(const void* data, size_t bytes) override { gpu_.mark_written(data, bytes); }
  void fill_zero_async(void* data, size_t bytes) override {
    do_or_record([this, data, bytes] { run("fill", [&] { gpu_.zero(data, bytes); }); });
  }
  void synchronize() override {}

  void* load_module(const std::string& code) override {
    auto module = std::make_unique<EmulatedModule>();
    run("load", [&] { module->code = gpu_.load(std::as_bytes(std::span(code)), description_.device); });
    return module.release();
  }
  void unload_module(void* module) noexcept override { delete static_cast<EmulatedModule*>(module); }
  void* function(void* module, const std::string& name) override {
    auto& loaded = *static_cast<EmulatedModule*>(module);
    run("find a kernel", [&] { (void)loaded.code.kernel(name); });
    loaded.functions.push_back(std::make_unique<EmulatedFunction>(loaded.code, name));
    return loaded.functions.back().get();
  }
  void allow_lds(void*, uint32_t) override {}  // one limit, which the launch was checked against
  void launch_async(void* function, GpuGrid grid, uint32_t threads, uint32_t lds_bytes, const void* params,
                    size_t bytes) override {
    const auto& kernel = *static_cast<const EmulatedFunction*>(function);
    const emu::Launch launch{
        .grid = {grid.x, grid.y, grid.z}, .block = {threads, 1, 1}, .dynamic_lds = lds_bytes};
    const auto* first = static_cast<const std::byte*>(params);
    do_or_record([this, &kernel, launch, arguments = std::vector(first, first + bytes)] {
      run("launch", [&] {
        if (hangs_in_ > 0 && ++launches_ >= hangs_in_) hang(kernel);
        if (machine_) return write_time(kernel, launch, arguments);
        const emu::Counters counters = gpu_.launch(kernel.code, kernel.name, launch, arguments);
        if (gpu_.options().count) write_counts(kernel, launch, counters);
      });
    });
  }

  void begin_capture() override {
    recording_.clear();
    capturing_ = true;
  }
  void* end_capture(std::string&) override {
    capturing_ = false;
    return new Recording(std::move(recording_));
  }
  void launch_graph_async(void* graph) override {
    for (const auto& step : *static_cast<Recording*>(graph)) step();
  }
  void destroy_graph(void* graph) noexcept override { delete static_cast<Recording*>(graph); }

  // Times are the host's: how long the interpreter took, nothing about a card.
  void* create_event() override { return new Clock::time_point(Clock::now()); }
  void destroy_event(void* event) noexcept override { delete static_cast<Clock::time_point*>(event); }
  void record_event(void* event) override { *static_cast<Clock::time_point*>(event) = Clock::now(); }
  void wait_event(void*) override {}
  double milliseconds(void* earlier, void* later) const override {
    const auto elapsed = *static_cast<Clock::time_point*>(later) - *static_cast<Clock::time_point*>(earlier);
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }

 private:
  [[noreturn]] void hang(const EmulatedFunction& kernel) const {
    log().warn("{}: hangs in {} ({})", description_.device, kernel.name, kHangVariable);
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  // Errors of the emulator as those of a driver.
  template <class F>
  void run(const char* call, F f) const {
    try {
      f();
    } catch (const Error& error) {
      throw DeviceError(gpu_call_failed(description_, call, error.what()));
    }
  }
  void write_counts(const EmulatedFunction& kernel, const emu::Launch& launch,
                    const emu::Counters& counters) const {
    const std::string path = environment(kCountVariable);
    std::ofstream file(path, std::ios::app);
    file << to_json(counters, kernel.code, kernel.code.kernel(kernel.name), launch).dump() << '\n';
    require<FileError>(file.good(), "cannot write ", printable(path), " (", kCountVariable, ")");
  }
  void write_time(const EmulatedFunction& kernel, const emu::Launch& launch,
                  std::span<const std::byte> arguments) {
    // A launch that was modelled before is not modelled again.
    std::string key = concat(kernel.name, ' ', launch.grid.x, ' ', launch.grid.y, ' ', launch.grid.z, ' ',
                             launch.block.x, ' ', launch.dynamic_lds, ' ');
    key.append(reinterpret_cast<const char*>(arguments.data()), arguments.size());
    nlohmann::ordered_json& line = modelled_[key];
    if (line.is_null()) {
      line = {{"kernel", kernel.name}, {"machine", machine_->name}};
      line.update(
          to_json(gpu_.time(kernel.code, kernel.name, launch, arguments, *machine_, emu::TimeOptions{})));
    }
    const std::string path = environment(kTimeVariable);
    std::ofstream file(path, std::ios::app);
    file << line.dump() << '\n';
    require<FileError>(file.good(), "cannot write ", printable(path), " (", kTimeVariable, ")");
  }
  void do_or_record(std::function<void()> step) {
    if (capturing_)
      recording_.push_back(std::move(step));
    else
      step();
  }

  GpuDescription description_;
  emu::Gpu gpu_;
  std::optional<emu::Machine> machine_;                     // whose times are modelled, with kTimeVariable
  std::map<std::string, nlohmann::ordered_json> modelled_;  // by launch
  std::map<void*, size_t> sizes_;
  uint64_t allocated_ = 0;
  bool capturing_ = false;
  Recording recording_;
  const int64_t hangs_in_ = hanging_launch();
  int64_t launches_ = 0;
};

}  // namespace

GpuReport emulated_gpus() {
  GpuReport report;
  for (const emu::CardRates& rates : emu::card_rates())
    if (const GpuProduct* gpu = card_of(rates)) report.gpus.push_back(describe(*gpu));
  return report;
}

std::unique_ptr<GpuDriver> open_emulator(const std::string& arch) {
  std::string known;
  for (const emu::CardRates& rates : emu::card_rates()) {
    const GpuProduct* gpu = card_of(rates);
    if (!gpu) continue;
    if (arch == gpu->arch) return std::make_unique<EmulatorDriver>(*gpu);
    known += concat(known.empty() ? "" : ", ", gpu->arch);
  }
  throw DeviceError(
      concat("emu:", printable(arch), ": there is no such emulated GPU; expected one of ", known));
}

#else

namespace {
constexpr const char* kAbsent =
    "this build has no emulated GPU (it needs LLVM 19 when it is built: llvm-19-dev, ROCM_SD_EMULATOR=ON)";
}

GpuReport emulated_gpus() { return {.problem = kAbsent}; }
std::unique_ptr<GpuDriver> open_emulator(const std::string& arch) {
  throw DeviceError(concat("emu:", printable(arch), ": ", kAbsent));
}

#endif

}  // namespace rocm_sd
