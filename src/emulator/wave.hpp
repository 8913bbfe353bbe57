// The state of one wave and the compact form of one instruction: what a handler gets. Plain data only, since
// the files that are compiled for several x86 levels include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocm_sd::emu {

struct Inst;
struct Wave;
struct WorkGroup;
class Memory;
using Handler = void (*)(Wave&, const Inst&);

// A VGPR is one row of 32 lanes in wave32 and two, half_stride dwords apart, in wave64.
constexpr uint32_t kRow = 32;
// Rows: v0..v255, a0..a255, and one more for what must be saved between the halves of a dual instruction.
constexpr uint16_t kSpareRow = 512;

// Where a scalar lives in Wave::sgpr. Numbers up to 127 are those of the encoding.
enum Scalar : uint16_t {
  kVcc = 106,
  kTtmp = 108,
  kM0 = 124,
  kExec = 126,
  kScc = 128,
  kSharedBase = 130,
  kSharedLimit = 132,
  kPrivateBase = 134,
  kPrivateLimit = 136,
  kVccz = 138,   // refreshed when read
  kExecz = 140,  // refreshed when read
  kFlatScratch = 142,
  kSink = 160,  // what is written to null
  kScalars = 192
};

enum class Type : uint8_t {
  kNone,
  kB16,
  kF16,
  kB32,
  kF32,
  kB64,
  kF64,
  kPkB16,   // two 16-bit integers in a dword
  kPkF16,   // two f16 in a dword
  kPkBf16,  // two bf16 in a dword
  kPkF32,   // two f32 in two dwords
  kBf16,
  kHalfBits,  // an f16 whose bits are moved, not computed with
  kMask,      // one bit a lane: one scalar in wave32, two in wave64
  kWide,      // as many dwords as the text says
};

enum class Kind : uint8_t { kNone, kVgpr, kSgpr, kConst, kSpecial, kPermuted };

enum SdwaSelect : uint8_t {
  kSdwaNone = 0,
  kByte0,
  kByte1,
  kByte2,
  kByte3,
  kWord0,
  kWord1,
  kDword,
  kSignExtend = 0x80
};

struct Operand {
  Kind kind = Kind::kNone;
  Type type = Type::kNone;
  uint8_t dwords = 1;
  bool modified = false;  // any of the following five
  bool neg = false, abs = false, neg_hi = false;
  uint8_t half = 0;   // bit 0: the low (or only) 16 bits come from the high half; bit 1: the high ones do
  uint8_t sdwa = 0;   // SdwaSelect
  uint16_t reg = 0;   // index of the row or of the scalar
  uint64_t bits = 0;  // of a constant
  const uint32_t* row = nullptr;  // of a constant: 32 copies of the low dword, then 32 of the high one
};

// Where each lane of a DPP operand comes from.
struct LaneMap {
  int8_t from[64];      // -1: no such lane
  uint64_t write_mask;  // row_mask and bank_mask
  bool bound_zero;      // a lane without a source reads 0 instead of staying as it was
  bool fetch_inactive;
};

enum InstFlag : uint32_t {
  kClamp = 1,
  kReturns = 2,   // an atomic that gives the old value
  kZeroHigh = 4,  // a 16-bit result clears the upper half (gfx9)
  kOffen = 8,     // buffer: a VGPR offset
  kIdxen = 16,    // buffer: a VGPR index
  kGfx12 = 128,
  kGfx9 = 256,
  kSecond = 512,        // the second half of a dual instruction: not counted on its own
  kStores = 4096,       // writes memory
  kAtomic = 8192,       // reads and writes it at once
  kToLds = 16384,       // a load whose data goes to LDS
  kWritesExec = 32768,  // v_cmpx
};

enum class Class : uint8_t { kValu, kTrans, kMatrix, kSalu, kSmem, kVmem, kLds, kBranch, kWait, kOther };
constexpr int kClasses = 10;

struct Inst {
  Handler run = nullptr;
  Handler inner = nullptr;  // the operation itself where `run` is a wrapper (DPP, SDWA, dual)
  Operand dst, sdst;
  Operand src[4];
  uint32_t flags = 0;
  uint8_t omod = 0;  // 1: times 2, 2: times 4, 3: half
  uint8_t dst_half = 0;
  uint8_t sdwa_dst = 0, sdwa_unused = 0;  // SdwaSelect; 0 pad, 1 sign-extend, 2 preserve
  Class cls = Class::kOther;
  uint8_t operands = 0;  // sources that the text has
  int32_t offset = 0, offset1 = 0;
  uint32_t aux = 0;  // immediate of SOPK/SOPP, or what an operation keeps for itself
  const Inst* target = nullptr;
  const LaneMap* lanes = nullptr;
  uint64_t address = 0;  // host address of the encoding, which is the device's too
  uint32_t bytes = 0;
  uint32_t text = 0;  // index of the disassembly in the program
};

enum class State : uint8_t { kRunning, kBarrier, kYield, kDone };

// How the mode register has floats treated: Wave::modes. The fields are the mode's own, taken apart when it
// is written (set_mode() in program.hpp). "16" is of f16 and f64, which share their fields.
enum Modes : uint32_t {
  kFlushIn32 = 1,  // denormals count as zeros of their sign
  kFlushOut32 = 2,
  kFlushIn16 = 4,
  kFlushOut16 = 8,
  kOmod32 =
      16,  // output modifiers are obeyed: the hardware ignores them where denormals are kept or in IEEE mode
  kOmod16 = 32,
  kClampKeepsNan = 64,
};

struct Program;

struct Wave {
  alignas(64) uint32_t sgpr[kScalars];
  alignas(64) uint32_t permuted[4 * 64];  // source 0 of a DPP instruction: [dword][half][32]
  uint32_t* rows = nullptr;
  uint32_t row_count = 0;
  uint32_t half_stride = 0;
  uint32_t halves = 1;
  uint32_t lanes = 32;
  const Inst* pc = nullptr;  // the next instruction
  State state = State::kRunning;
  uint32_t mode = 0;   // the hardware register
  uint32_t modes = 0;  // Modes
  uint32_t index = 0;  // in its group
  // The allocation that the last access fell into.
  uint64_t hit_begin = 1, hit_end = 0;
  Memory* memory = nullptr;
  const Program* program = nullptr;
  WorkGroup* group = nullptr;
  uint8_t* lds = nullptr;
  uint32_t lds_bytes = 0;
  uint8_t* scratch = nullptr;  // [lane][scratch_bytes]
  uint32_t scratch_bytes = 0;
  uint32_t loops = 0;         // backward branches taken
  uint64_t instructions = 0;  // run so far
  uint32_t signalled = 0;     // split barriers: this wave has signalled and not yet waited
};

// A named operation: the types of its operands in the order of the text.
struct Operation {
  const char* name;
  Handler run;
  Class cls;
  uint8_t dsts;  // 0, 1, or 2 (the second is a mask or a scalar)
  uint8_t srcs;
  bool reads_dst;  // the destination is the last source as well
  Type dst;
  Type src[4];
};
struct Operations {
  const Operation* first = nullptr;
  size_t count = 0;
};

}  // namespace rocm_sd::emu
