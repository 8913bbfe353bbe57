// A translated code object, the group that a wave belongs to, and what handlers may ask of them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "emulator/line_table.hpp"
#include "emulator/memory.hpp"
#include "emulator/wave.hpp"

namespace rocm_sd::emu {

// A kernel did what it must not (an access outside every buffer, an instruction that is not implemented).
using KernelFault = ErrorOf<ExitCode::kGenerationFailed, struct KernelFaultTag>;

// What the interpreter needs to know about a target.
struct Target {
  std::string name;   // gfx1100
  bool gfx9 = false;  // gfx90a, gfx942
  bool gfx11 = false, gfx12 = false;
  bool packed_ids = true;  // work-item ids in one register
  bool architected_scratch = true;
  bool accumulators = false;  // AccVGPRs
};
// Throws UsageError for a target that is not emulated.
Target find_target(std::string_view name);

struct Program {
  Target target;
  std::vector<Inst> code;
  std::vector<std::string> texts;
  // Sections of machine code: host address, and the index in `code` of the instruction at each 4 bytes (or
  // -1).
  struct Section {
    uint64_t begin = 0, end = 0;
    std::vector<int32_t> index;
  };
  std::vector<Section> sections;
  struct alignas(64) ConstantRow {
    std::array<uint32_t, 2 * kRow> lane;  // the low dword 32 times, then the high one
  };
  std::deque<ConstantRow> constants;  // deques: instructions point at their elements
  std::deque<LaneMap> lane_maps;
  const LineTable* lines = nullptr;  // by offset in the image; of the code object, which outlives this

  // The instruction at a host address, or null.
  const Inst* at(uint64_t address) const;
};

class Checker;
class AccessMeter;
class Recorder;

struct WorkGroup {
  Checker* check = nullptr;      // Options::check
  AccessMeter* meter = nullptr;  // Options::count
  Recorder* recorder = nullptr;  // recording.hpp
  std::span<const Range> ranges;
  std::string_view kernel;
  uint64_t image = 0;  // where the code object is loaded: addresses in messages are relative to it
  uint32_t id[3] = {};
};

// Where the flat address space shows LDS and scratch: above every host address.
constexpr uint64_t kSharedWindow = uint64_t{1} << 48, kPrivateWindow = uint64_t{2} << 48;
// What a kernel gets in place of structures that serve it on the host (printf's buffer and the like), 4 GiB
// each: an access there is a fault that says which service it was.
constexpr uint64_t kServiceWindow = uint64_t{3} << 48;
struct HostService {
  std::string_view argument;  // the hidden argument that points to it
  std::string_view what;
};
std::span<const HostService> host_services();

// Hardware registers, numbered as s_getreg_b32 does here: the translator gives them by name, since families
// number them differently.
enum HardwareRegister : uint32_t {
  kModeRegister = 1,
  kUnitRegister = 2,  // which compute unit, die or queue
  kApertureRegister = 15,
  kCyclesRegister = 29,
  kCyclesHighRegister = 30,
  kUnknownRegister = 63,
};
constexpr uint32_t kMessageClock = 0x83;  // s_sendmsg_rtn: MSG_RTN_GET_REALTIME

// The clock of the emulated GPU: nanoseconds of the host, as cycles of a shader at 1 GHz. The constant clock
// (s_memrealtime) ticks once in kCyclesPerTick, 100 MHz as on the cards.
uint64_t clock_ticks();
constexpr uint64_t kCyclesPerTick = 10;

// Writes the mode register. The caller has refused what is not emulated.
void set_mode(Wave& wave, uint32_t mode);

// Throws KernelFault "kernel K, instruction `text` at 0x...: <what>".
[[noreturn]] void fault(const Wave& wave, const Inst& inst, std::string_view what);

// Host pointer to bytes that a wave may access; throws KernelFault naming the lane and the address otherwise.
// Alignment is not asked for: the memory pipeline allows any.
uint8_t* check_access(Wave& wave, const Inst& inst, uint64_t address, uint32_t bytes, uint32_t lane);

inline uint8_t* access(Wave& wave, const Inst& inst, uint64_t address, uint32_t bytes, uint32_t lane) {
  if (address >= wave.hit_begin && address + bytes <= wave.hit_end) [[likely]]
    return reinterpret_cast<uint8_t*>(address);
  return check_access(wave, inst, address, bytes, lane);
}

// Host pointer into the LDS of the group; throws KernelFault.
inline uint8_t* lds_access(Wave& wave, const Inst& inst, uint32_t offset, uint32_t bytes, uint32_t lane);
[[noreturn]] void lds_fault(Wave& wave, const Inst& inst, uint32_t offset, uint32_t bytes, uint32_t lane);
inline uint8_t* lds_access(Wave& wave, const Inst& inst, uint32_t offset, uint32_t bytes, uint32_t lane) {
  if (static_cast<uint64_t>(offset) + bytes > wave.lds_bytes) [[unlikely]]
    lds_fault(wave, inst, offset, bytes, lane);
  return wave.lds + offset;
}

}  // namespace rocm_sd::emu
