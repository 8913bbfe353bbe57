#include "emulator/hazards.hpp"
#include "base/format.hpp"

#include <algorithm>

namespace rocm_sd::emu {

namespace {

bool overlap(const Uses::Registers& a, const Operand& o) {
  return o.kind == Kind::kVgpr && o.reg < a.first + a.count && a.first < o.reg + o.dwords;
}

// Wait states between an MFMA and what reads its result as A or B, or writes over it (gfx940 and later: two
// or three more than its passes).
uint32_t after_result(uint32_t passes, bool xdl, bool gfx90a) {
  if (!gfx90a) return passes + (xdl ? 3 : 2);
  return passes <= 2 ? 5 : passes <= 8 ? 11 : 19;
}

// A sparse product (SMFMAC) has its index third, and its addend, which is its destination, last.
const Operand& addend_of(const Inst& in) { return in.src[3].kind == Kind::kNone ? in.src[2] : in.src[3]; }

}  // namespace

void HazardCheck::start() {
  state_ = 1;
  last_wmma_ = nullptr;
  exec_ = {};
  matrix_.fill({});
  vector_.fill({});
  read_as_c_.fill({});
}

// Wait states between then and now.
uint32_t HazardCheck::since(uint64_t state) const {
  return static_cast<uint32_t>(std::min<uint64_t>(state_ - state, 1000));
}

void HazardCheck::need(const Wave& w, const Inst& in, const Inst& other, uint64_t state, uint32_t states,
                       const char* what) {
  const uint32_t found = since(state);
  if (found < states)
    fault(w, in,
          concat(what, " `", printable(w.program->texts[other.text]), "` at 0x",
                 fmt::format("{:x}", other.address - w.group->image), " after ", found,
                 " wait states, needs ", states));
}

void HazardCheck::mfma_reads(const Wave& w, const Inst& in, const Uses& u, bool gfx90a) {
  if (exec_.by) need(w, in, *exec_.by, exec_.state, 4, "a matrix instruction follows a change of exec by");
  for (int s = 0; s < 4; ++s) {
    const Operand& o = in.src[s];
    if (o.kind != Kind::kVgpr) continue;
    const bool addend = &o == &addend_of(in);
    for (uint32_t r = o.reg; r < uint32_t{o.reg} + o.dwords; ++r) {
      if (const Last& v = vector_[r]; v.by)
        need(w, in, *v.by, v.state, 2, "a matrix instruction reads the result of");
      const Last& m = matrix_[r];
      if (!m.by) continue;
      uint32_t states = 0;
      if (!addend) {
        states = m.is_double ? (m.passes == 4 ? 6 : 11) : after_result(m.passes, m.is_xdl, gfx90a);
      } else if (m.registers.first == o.reg && m.registers.count == o.dwords) {
        const bool small_doubles = m.is_double && u.is_double && m.passes == 4 && u.passes == 4;
        states = small_doubles ? 4 : !gfx90a && m.passes == 2 ? 2 : 0;
        if (gfx90a && !u.is_double && m.is_double) states = 0;
      } else if (m.is_double) {
        states = u.is_xdl || (gfx90a && !u.is_double) ? 0 : m.passes == 4 ? 4 : 9;
      } else if (!gfx90a) {
        states = u.is_xdl && !m.is_xdl ? 0 : m.passes + (m.is_xdl ? 1 : 0);
      } else {
        states = (m.passes <= 2 ? 2 : m.passes <= 8 ? 8 : 16) + (u.is_double ? 1 : 0);
      }
      need(w, in, *m.by, m.state, states, "a matrix instruction reads the result of");
    }
  }
}

// Vector and memory instructions near a matrix instruction.
void HazardCheck::others(const Wave& w, const Inst& in, const Uses& u, bool gfx90a) {
  const bool memory = u.unit != Unit::kVector;
  for (const auto& list : u.vector_reads)
    for (uint32_t r = list.first; r < uint32_t{list.first} + list.count; ++r)
      if (const Last& m = matrix_[r]; m.by)
        need(w, in, *m.by, m.state,
             m.is_double ? (memory ? (m.passes == 4 ? 9 : 18) : (m.passes == 4 ? 6 : 11))
                         : after_result(m.passes, m.is_xdl, gfx90a),
             "reads the result of");
  for (const auto& list : u.vector_writes)
    for (uint32_t r = list.first; r < uint32_t{list.first} + list.count; ++r) {
      if (const Last& m = matrix_[r]; m.by)
        need(w, in, *m.by, m.state,
             m.is_double ? (m.passes == 4 ? 6 : 11) : after_result(m.passes, m.is_xdl, gfx90a),
             "overwrites the result of");
      if (const Last& c = read_as_c_[r]; c.by)
        need(w, in, *c.by, c.state,
             c.passes <= 2   ? 1
             : c.passes <= 4 ? 3
             : c.passes <= 8 ? 7
                             : 15,
             "overwrites the addend of");
    }
}

void HazardCheck::before(const Wave& w, const Inst& in, const Uses& u, const Target& target) {
  if (!target.gfx9) {
    if (u.unit == Unit::kMatrix && last_wmma_ &&
        (overlap(last_wmma_result_, in.src[0]) || overlap(last_wmma_result_, in.src[1])))
      fault(w, in,
            concat("multiplies the result of `", printable(w.program->texts[last_wmma_->text]), "` at 0x",
                   fmt::format("{:x}", last_wmma_->address - w.group->image),
                   " without a vector instruction (v_nop) between"));
    return;
  }
  const bool gfx90a = target.name == "gfx90a";
  if (u.unit == Unit::kMatrix)
    mfma_reads(w, in, u, gfx90a);
  else if (u.unit == Unit::kVector || u.unit >= Unit::kLoad)
    others(w, in, u, gfx90a);
}

void HazardCheck::after(const Inst& in, const Uses& u, const Target& target) {
  if (!target.gfx9) {
    if (u.unit == Unit::kMatrix) {
      last_wmma_ = &in;
      last_wmma_result_ = u.vector_writes.of[0];
    } else if (u.unit == Unit::kVector) {
      last_wmma_ = nullptr;
    }
    return;
  }
  state_ += u.states;
  if (u.unit == Unit::kVector && u.writes_exec) exec_ = {.by = &in, .state = state_};
  if (u.unit == Unit::kMatrix) {
    const Last me{.by = &in,
                  .state = state_,
                  .registers = u.vector_writes.of[0],
                  .passes = u.passes,
                  .is_double = u.is_double,
                  .is_xdl = u.is_xdl};
    const Operand& c = addend_of(in);
    if (c.kind == Kind::kVgpr && u.is_xdl)
      for (uint32_t r = c.reg; r < uint32_t{c.reg} + c.dwords; ++r) read_as_c_[r] = me;
    for (uint32_t r = me.registers.first; r < uint32_t{me.registers.first} + me.registers.count; ++r) {
      matrix_[r] = me;
      vector_[r].by = nullptr;
    }
    return;
  }
  const Last me{.by = &in, .state = state_};
  for (const auto& list : u.vector_writes)
    for (uint32_t r = list.first; r < uint32_t{list.first} + list.count; ++r) {
      matrix_[r].by = nullptr;
      read_as_c_[r].by = nullptr;
      vector_[r] = u.unit == Unit::kVector && !u.is_dot ? me : Last{};
    }
}

}  // namespace rocm_sd::emu
