// Branches, barriers, waits, the mode register, and what has no effect on function.
#include <iterator>
#include <thread>

#include "emulator/operations.hpp"
#include "emulator/program.hpp"
#include "emulator/scalar_core.hpp"

namespace rocm_sd::emu {
namespace {

using ROCM_SD_ISA::put64;
using ROCM_SD_ISA::scalar;
using ROCM_SD_ISA::scalar64;

constexpr Type kN = Type::kNone, kB = Type::kB64;

void take(Wave& w, const Inst& in) {
  // Loops give other waves of the group a turn: one may wait for what another has yet to write.
  if (in.target <= &in && (++w.loops & 0x3ff) == 0) w.state = State::kYield;
  w.pc = in.target;
}
void branch(Wave& w, const Inst& in) { take(w, in); }
bool no_lanes(const Wave& w, uint16_t reg) {
  return w.sgpr[reg] == 0 && (w.halves == 1 || w.sgpr[reg + 1] == 0);
}
template <bool kOnes>
void branch_scc(Wave& w, const Inst& in) {
  if ((w.sgpr[kScc] != 0) == kOnes) take(w, in);
}
template <uint16_t kReg, bool kZero>
void branch_mask(Wave& w, const Inst& in) {
  if (no_lanes(w, kReg) == kZero) take(w, in);
}

uint64_t next_address(const Inst& in) { return in.address + in.bytes; }
void jump(Wave& w, const Inst& in, uint64_t address) {
  const Inst* target = w.program->at(address);
  if (!target) fault(w, in, concat("jump to ", address, ", where there is no instruction"));
  if (target <= &in && (++w.loops & 0x3ff) == 0) w.state = State::kYield;  // as take()
  w.pc = target;
}
void getpc(Wave& w, const Inst& in) { put64(w, in.dst, next_address(in)); }
void setpc(Wave& w, const Inst& in) { jump(w, in, scalar64(w, in.src[0])); }
void swappc(Wave& w, const Inst& in) {
  const uint64_t to = scalar64(w, in.src[0]);
  put64(w, in.dst, next_address(in));
  jump(w, in, to);
}
void call(Wave& w, const Inst& in) {
  put64(w, in.dst, next_address(in));
  take(w, in);
}

void endpgm(Wave& w, const Inst&) { w.state = State::kDone; }
void barrier(Wave& w, const Inst&) { w.state = State::kBarrier; }
void barrier_signal(Wave& w, const Inst& in) {
  if (static_cast<int32_t>(in.src[0].bits) != -1)
    fault(w, in, "not implemented: barriers other than the group's");
  if (w.signalled) fault(w, in, "signals a barrier twice without waiting");
  w.signalled = 1;
}
void barrier_wait(Wave& w, const Inst& in) {
  if (!w.signalled) fault(w, in, "waits for a barrier that it has not signalled");
  w.signalled = 0;
  w.state = State::kBarrier;
}
void trap(Wave& w, const Inst& in) { fault(w, in, "trap"); }
// A message that has an answer: the clock, whose number the translator leaves in aux. The others ask for a
// doorbell and for where traps are handled, neither of which is here: 0.
void message_result(Wave& w, const Inst& in) {
  const uint64_t answer = in.aux == kMessageClock ? clock_ticks() / kCyclesPerTick : 0;
  w.sgpr[in.dst.reg] = static_cast<uint32_t>(answer);
  if (in.dst.type == kB) w.sgpr[in.dst.reg + 1] = static_cast<uint32_t>(answer >> 32);
}
// Who sleeps waits for others: waves of its group, or of another GPU, whom another thread runs.
void sleep(Wave& w, const Inst&) {
  w.state = State::kYield;
  std::this_thread::yield();
}
void nothing(Wave&, const Inst&) {}

// ---- hardware registers: aux holds id | offset << 6 | (size - 1) << 11 ----
void getreg(Wave& w, const Inst& in) {
  const uint32_t id = in.aux & 63, offset = in.aux >> 6 & 31, size = (in.aux >> 11 & 31) + 1;
  uint32_t value = 0;  // of the numbers of units too: every wave runs on the first
  switch (id) {
    case kModeRegister: value = w.mode; break;
    case kApertureRegister:
      value = w.sgpr[kPrivateBase + 1] >> 16 | (w.sgpr[kSharedBase + 1] & 0xffff0000);
      break;
    case kCyclesRegister: value = static_cast<uint32_t>(clock_ticks()); break;
    case kCyclesHighRegister: value = static_cast<uint32_t>(clock_ticks() >> 32); break;
    case kUnitRegister: break;
    default: fault(w, in, "not implemented: this hardware register");
  }
  value >>= offset;
  w.sgpr[in.dst.reg] = size == 32 ? value : value & ((1u << size) - 1);
}
void change_mode(Wave& w, const Inst& in, uint32_t mode) {
  if (mode & 15) fault(w, in, "not implemented: rounding other than to nearest even");
  set_mode(w, mode);
}
void set_field(Wave& w, const Inst& in, uint32_t value) {
  const uint32_t id = in.aux & 63, offset = in.aux >> 6 & 31, size = (in.aux >> 11 & 31) + 1;
  if (id != kModeRegister) return;  // the others steer traps, priorities and caches
  const uint32_t mask = (size == 32 ? ~0u : (1u << size) - 1) << offset;
  change_mode(w, in, (w.mode & ~mask) | (value << offset & mask));
}
void setreg(Wave& w, const Inst& in) { set_field(w, in, scalar(w, in.src[0])); }
void round_mode(Wave& w, const Inst& in) { change_mode(w, in, (w.mode & ~15u) | (in.aux & 15)); }
void denorm_mode(Wave& w, const Inst& in) { change_mode(w, in, (w.mode & ~0xf0u) | (in.aux & 15) << 4); }

constexpr Operation jump_entry(const char* name, Handler run) {
  return {name, run, Class::kBranch, 0, 1, false, kN, {Type::kB32}};
}
constexpr Operation quiet(const char* name, Class cls = Class::kOther) {
  return {name, &nothing, cls, 0, 0, false, kN, {}};
}
constexpr Operation plain(const char* name, Handler run, Class cls) {
  return {name, run, cls, 0, 0, false, kN, {}};
}

constexpr Operation kTable[] = {
    jump_entry("s_branch", &branch),
    jump_entry("s_cbranch_scc0", &branch_scc<false>),
    jump_entry("s_cbranch_scc1", &branch_scc<true>),
    jump_entry("s_cbranch_vccz", &branch_mask<kVcc, true>),
    jump_entry("s_cbranch_vccnz", &branch_mask<kVcc, false>),
    jump_entry("s_cbranch_execz", &branch_mask<kExec, true>),
    jump_entry("s_cbranch_execnz", &branch_mask<kExec, false>),
    {"s_call_b64", &call, Class::kBranch, 1, 1, false, kB, {Type::kB32}},
    {"s_getpc_b64", &getpc, Class::kSalu, 1, 0, false, kB, {}},
    {"s_setpc_b64", &setpc, Class::kBranch, 0, 1, false, kN, {kB}},
    {"s_swappc_b64", &swappc, Class::kBranch, 1, 1, false, kB, {kB}},
    plain("s_endpgm", &endpgm, Class::kBranch),
    plain("s_barrier", &barrier, Class::kWait),
    {"s_barrier_signal", &barrier_signal, Class::kWait, 0, 1, false, kN, {Type::kB32}},
    plain("s_barrier_wait", &barrier_wait, Class::kWait),
    plain("s_trap", &trap, Class::kOther),
    plain("s_sethalt", &trap, Class::kOther),  // how a trap without a handler ends
    {"s_sendmsg_rtn_b32", &message_result, Class::kOther, 1, 0, false, Type::kB32, {}},
    {"s_sendmsg_rtn_b64", &message_result, Class::kOther, 1, 0, false, kB, {}},
    {"s_getreg_b32", &getreg, Class::kSalu, 1, 0, false, Type::kB32, {}},
    {"s_setreg_b32", &setreg, Class::kSalu, 0, 1, false, kN, {Type::kB32}},
    {"s_setreg_imm32_b32", &setreg, Class::kSalu, 0, 1, false, kN, {Type::kB32}},
    plain("s_round_mode", &round_mode, Class::kSalu),
    plain("s_denorm_mode", &denorm_mode, Class::kSalu),
    quiet("s_waitcnt", Class::kWait),
    quiet("s_waitcnt_vscnt", Class::kWait),
    quiet("s_waitcnt_vmcnt", Class::kWait),
    quiet("s_waitcnt_lgkmcnt", Class::kWait),
    quiet("s_waitcnt_expcnt", Class::kWait),
    quiet("s_waitcnt_depctr", Class::kWait),
    quiet("s_wait_alu", Class::kWait),
    quiet("s_wait_loadcnt", Class::kWait),
    quiet("s_wait_storecnt", Class::kWait),
    quiet("s_wait_dscnt", Class::kWait),
    quiet("s_wait_kmcnt", Class::kWait),
    quiet("s_wait_samplecnt", Class::kWait),
    quiet("s_wait_bvhcnt", Class::kWait),
    quiet("s_wait_expcnt", Class::kWait),
    quiet("s_wait_loadcnt_dscnt", Class::kWait),
    quiet("s_wait_storecnt_dscnt", Class::kWait),
    quiet("s_wait_idle", Class::kWait),
    quiet("s_wait_event", Class::kWait),
    quiet("s_delay_alu"),
    quiet("s_clause"),
    quiet("s_nop"),
    plain("s_sleep", &sleep, Class::kOther),
    plain("s_sleep_var", &sleep, Class::kOther),
    quiet("s_setprio"),
    quiet("s_sendmsg"),
    quiet("s_icache_inv"),
    quiet("s_inst_prefetch"),
    quiet("s_set_inst_prefetch_distance"),
    quiet("s_ttracedata"),
    quiet("s_ttracedata_imm"),
    quiet("s_version"),
    quiet("s_code_end"),
};

}  // namespace

void set_mode(Wave& w, uint32_t mode) {
  w.mode = mode;
  // gfx12 has neither: no operation is in IEEE mode, and clamped NaN are zeros.
  const bool gfx12 = w.program->target.gfx12, ieee = !gfx12 && mode & 1 << 9;
  const auto unless = [mode](int bit, uint32_t flag) { return mode >> bit & 1 ? 0u : flag; };
  w.modes = unless(4, kFlushIn32) | unless(5, kFlushOut32) | unless(6, kFlushIn16) | unless(7, kFlushOut16);
  if (!ieee) w.modes |= unless(5, kOmod32) | unless(7, kOmod16);
  if (!gfx12 && !(mode & 1 << 8)) w.modes |= kClampKeepsNan;
}

Operations control_operations() { return {kTable, std::size(kTable)}; }

}  // namespace rocm_sd::emu
