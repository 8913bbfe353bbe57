// An emulated AMD GPU: memory, code objects and launches. The machine code that ships runs as it is.
//
//   emu::Gpu gpu("gfx1100");
//   const emu::CodeObject code = gpu.load(file, "vadd.hsaco");
//   gpu.launch(code, "vadd", {.grid = {40, 1, 1}, .block = {256, 1, 1}}, as_bytes(params));
//
// Device addresses are host addresses: what the kernel wrote can be read at once. Launches are synchronous
// and spread their groups over host threads. It proves function; how fast it runs says nothing of a card.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/code_object.hpp"
#include "emulator/counting.hpp"
#include "emulator/program.hpp"

namespace rocm_sd::emu {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  Dim3 grid;   // in groups
  Dim3 block;  // in threads
  uint32_t dynamic_lds = 0;
};

// Called for each instruction of each wave, with its disassembly. It may throw, which ends the launch.
using Trace = std::function<void(const Wave& wave, const Inst& inst, std::string_view text)>;

struct Options {
  int threads = 0;     // host threads; 0: one a core
  bool count = false;  // fills all of Counters; see analysis.hpp
  bool check = false;  // what docs/emulator.md lists under Checking becomes a fault
  // Limits of a launch, which faults where it reaches one and says where its waves stand; 0: none.
  uint64_t instruction_limit = 0;  // of a wave
  double seconds_limit = 0;        // of the host's time
  // Scratch of a lane beyond what the kernel states, where it calls functions that it does not know.
  uint32_t stack_bytes = 16384;
  Trace before, trace;  // before and after each instruction: launches run on one thread
};

struct Counters {
  uint64_t waves = 0;
  uint64_t instructions = 0;                  // of waves
  std::array<uint64_t, kClasses> by_class{};  // with Options::count
  std::vector<uint64_t> executed;             // with Options::count: by index in Program::code
  std::vector<AccessCount> memory;            // with Options::count: by the same index
  DistinctLines distinct;                     // with Options::count
};

struct Machine;
struct TimeOptions;
struct LaunchTime;

class CodeObject {
 public:
  const Kernel& kernel(std::string_view name) const;  // throws UsageError if there is none
  std::vector<std::string> kernels() const;
  const std::string& target() const;
  const Program& program() const;  // translated on the first call
  uint64_t base() const;
  const LineTable& lines() const;  // by offset in the image
  // "file:line" of the code at an offset in the image, where the object has debug information.
  std::optional<std::string> source_line(uint64_t offset) const;

 private:
  friend class Gpu;
  struct Loaded;
  std::shared_ptr<const Loaded> loaded_;
};

class Gpu {
 public:
  // arch: "gfx1100" and its kin (see targets()). Throws UsageError for one that is not emulated.
  explicit Gpu(const std::string& arch, Options options = {});

  const Target& target() const { return target_; }
  Options& options() { return options_; }

  // Device memory, zeroed; free() what allocate() gave, the rest goes with the Gpu.
  void* allocate(size_t bytes) { return memory_->allocate(bytes); }
  // The same, but with Options::check a kernel that reads a byte of it faults unless write(), copy(), zero()
  // or a kernel wrote that byte before.
  void* allocate_watched(size_t bytes) {
    return options_.check ? memory_->allocate_watched(bytes) : memory_->allocate(bytes);
  }
  void free(void* pointer) { memory_->release(pointer); }
  // The host's side of that memory. Throw UsageError for bytes that are not all in one live allocation.
  void write(void* to, const void* from, size_t bytes);       // from the host
  void read(void* to, const void* from, size_t bytes) const;  // to the host
  // Of watched memory: the bytes count as written; how many of the bytes nothing has written.
  void mark_written(const void* at, size_t bytes) { memory_->mark_written(at, bytes); }
  size_t unwritten(const void* at, size_t bytes) const { return memory_->unwritten(at, bytes); }
  void copy(void* to, const void* from, size_t bytes);
  void zero(void* to, size_t bytes);
  // Host memory that kernels may access, until forget().
  void admit(const void* pointer, size_t bytes) { memory_->admit(pointer, bytes); }
  void forget(const void* pointer) { memory_->forget(pointer); }

  // Loads a code object; `what` names it in errors. Throws FormatError if it is damaged, UsageError if it is
  // for another target.
  CodeObject load(std::span<const std::byte> file, const std::string& what = "code object");

  // Runs a kernel to its end. kernarg: its arguments as laid out in memory, without the hidden ones.
  // Throws UsageError for a launch that no GPU would take, KernelFault for what the kernel did wrong.
  Counters launch(const CodeObject& code, std::string_view kernel, const Launch& launch,
                  std::span<const std::byte> kernarg);
  // The time that the launch would take on a card, modelled (launch_time.hpp). Runs some of its groups only:
  // what they leave in memory is of no use.
  LaunchTime time(const CodeObject& code, std::string_view kernel, const Launch& launch,
                  std::span<const std::byte> kernarg, const Machine& machine, const TimeOptions& options);

 private:
  Target target_;
  Options options_;
  std::shared_ptr<Memory> memory_;
};

// The targets that are emulated.
std::vector<std::string> targets();

}  // namespace rocm_sd::emu
