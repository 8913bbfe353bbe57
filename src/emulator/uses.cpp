#include "emulator/uses.hpp"

#include <algorithm>

#include "emulator/analysis.hpp"
#include "emulator/names.hpp"
#include "emulator/operand_text.hpp"

namespace rocm_sd::emu {

namespace {

std::string_view mnemonic_of(std::string_view text) { return text.substr(0, text.find_first_of(" \t")); }

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The number of "name(3)" in the text, or -1.
int16_t bracketed(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t open = at + name.size();
    if (at > 0 && text[at - 1] != ' ') continue;
    if (open >= text.size() || text[open] != '(') continue;
    const auto value = parse_integer(text.substr(open + 1, text.find(')', open) - open - 1));
    if (value) return static_cast<int16_t>(*value);
  }
  return -1;
}

int16_t& wait(Uses& u, Counter c) { return u.waits[static_cast<size_t>(c)]; }

void parse_wait(Uses& u, std::string_view name, std::string_view text) {
  const size_t last = text.find_last_of(" ,");
  const auto number = last == std::string_view::npos ? std::nullopt : parse_integer(text.substr(last + 1));
  const auto value = static_cast<int16_t>(number.value_or(0));
  if (name == "s_waitcnt") {
    wait(u, Counter::kLoad) = bracketed(text, "vmcnt");
    wait(u, Counter::kLds) = bracketed(text, "lgkmcnt");
  } else if (name == "s_waitcnt_vscnt" || name == "s_wait_storecnt") {
    wait(u, Counter::kStore) = value;
  } else if (name == "s_waitcnt_vmcnt" || name == "s_wait_loadcnt") {
    wait(u, Counter::kLoad) = value;
  } else if (name == "s_waitcnt_lgkmcnt" || name == "s_wait_dscnt") {
    wait(u, Counter::kLds) = value;
  } else if (name == "s_wait_kmcnt") {
    wait(u, Counter::kScalar) = value;
  } else if (name == "s_wait_loadcnt_dscnt" || name == "s_wait_storecnt_dscnt") {
    wait(u, name == "s_wait_loadcnt_dscnt" ? Counter::kLoad : Counter::kStore) = value >> 8 & 63;
    wait(u, Counter::kLds) = value & 63;
  } else if (name == "s_wait_idle") {
    u.waits = {0, 0, 0, 0};
  }
}

void memory_unit(Uses& u, const Inst& in, std::string_view name, const Target& target) {
  const bool writes = in.flags & kStores, returns = !writes || in.flags & kReturns;
  switch (in.cls) {
    case Class::kSmem:
      u.unit = Unit::kScalarMemory;
      u.counter = target.gfx12 ? Counter::kScalar : Counter::kLds;
      break;
    case Class::kLds:
      if (name == "ds_nop") break;
      u.unit = Unit::kLds;
      u.counter = Counter::kLds;
      break;
    case Class::kVmem:
      u.unit = name.starts_with("flat_") ? Unit::kFlat : returns ? Unit::kLoad : Unit::kStore;
      u.counter = target.gfx9 || returns ? Counter::kLoad : Counter::kStore;
      break;
    default:
      if (name.starts_with("s_sendmsg_rtn")) {
        u.unit = Unit::kScalarMemory;
        u.counter = target.gfx12 ? Counter::kScalar : Counter::kLds;
      } else if (name == "global_inv") {  // of gfx12: counts as a load, as writing back does as a store
        u.unit = Unit::kLoad;
        u.counter = Counter::kLoad;
      } else if (name == "global_wb" || name == "global_wbinv") {
        u.unit = Unit::kStore;
        u.counter = Counter::kStore;
      }
  }
}

void matrix_unit(Uses& u, const Inst& in, std::string_view name, std::string_view text,
                 const Target& target) {
  u.unit = Unit::kMatrix;
  u.is_mfma = has(name, "mfma");
  const std::string_view types = name.substr(std::min(name.size(), name.find('x')));
  u.is_double = has(types, "f64");
  u.is_xdl = !u.is_double && (!has(types, "f32") || has(types, "xf32") || target.name == "gfx90a");
  if (!u.is_mfma) return;
  const CardRates* rates = find_rates(target.name);
  const double cycles = rates ? matrix_cycles(in, text, *rates) : 64;
  u.passes = static_cast<uint8_t>(std::clamp(cycles / 4, 2.0, 16.0));
  if (u.is_double) u.passes = has(name, "4x4x4") ? 4 : 8;
}

}  // namespace

Uses uses_of(const Inst& in, std::string_view whole, const Target& target) {
  Uses u;
  const size_t pair = whole.find(" :: ");
  const std::string_view text = pair == std::string_view::npos ? whole
                                : in.flags & kSecond           ? whole.substr(pair + 4)
                                                               : whole.substr(0, pair);
  const std::string name = operation_name(mnemonic_of(text));
  for (const Operand& o : in.src) {
    if (o.kind == Kind::kVgpr || o.kind == Kind::kPermuted) u.vector_reads.add(o);
    if (o.kind == Kind::kSgpr) u.scalar_reads.add(o);
  }
  for (const Operand* o : {&in.dst, &in.sdst}) {
    if (o->kind == Kind::kVgpr) u.vector_writes.add(*o);
    if (o->kind == Kind::kSgpr && o->reg != kSink) u.scalar_writes.add(*o);
    if (o->kind == Kind::kSgpr && (o->reg == kExec || o->reg == kExec + 1)) u.writes_exec = true;
  }
  if (name.starts_with("v_cmpx")) u.writes_exec = true;
  if (name.starts_with("buffer_atomic") && in.flags & kReturns) u.vector_writes.add(in.src[0]);
  if (in.cls == Class::kWait) parse_wait(u, name, text);
  if (name == "s_nop") {
    const size_t space = text.find(' ');
    const auto count = space == std::string_view::npos ? std::nullopt : parse_integer(text.substr(space + 1));
    u.states = static_cast<uint8_t>(std::clamp<int64_t>(count.value_or(0), 0, 15) + 1);
  }
  if (in.cls == Class::kValu || in.cls == Class::kTrans) u.unit = Unit::kVector;
  if (in.cls == Class::kMatrix) matrix_unit(u, in, name, text, target);
  u.is_dot = name.starts_with("v_dot");
  memory_unit(u, in, name, target);
  if (in.flags & kSecond) u.states = 0;
  return u;
}

}  // namespace rocm_sd::emu
