#include "emulator/wait_check.hpp"
#include "base/format.hpp"

namespace rocm_sd::emu {

namespace {

std::string register_name(char file, uint32_t number) {
  if (file == 'v' && number >= 256) return concat("a", number - 256);
  return concat(file, number);
}
std::string loading(const Wave& w, const Inst& by) {
  return concat("`", printable(w.program->texts[by.text]), "` at 0x",
                fmt::format("{:x}", by.address - w.group->image));
}

}  // namespace

void WaitCheck::start() {
  for (Queue& q : queues_) q.open.clear(), q.unordered = 0;
  vector_.fill({});
  scalar_.fill({});
  pending_ = serial_ = 0;
  lds_ = loads_ = {};
}

void WaitCheck::read(const Wave& w, const Inst& in, const Pending* file, const Uses::Registers& r,
                     char name) {
  for (uint32_t i = r.first; i < uint32_t{r.first} + r.count; ++i)
    if (file[i].by)
      fault(w, in, concat("reads ", register_name(name, i), " without a wait for ", loading(w, *file[i].by)));
}

void WaitCheck::overwrite(const Wave& w, const Inst& in, const Uses& u, const Pending* file,
                          const Uses::Registers& r, char name) {
  for (uint32_t i = r.first; i < uint32_t{r.first} + r.count; ++i) {
    const Pending& p = file[i];
    if (!p.by) continue;
    const bool follows = u.unit == Unit::kLds ? p.lds : u.unit == Unit::kLoad && !p.lds;
    if (follows && p.ordered && u.counter == p.counter) continue;
    fault(w, in, concat("overwrites ", register_name(name, i), " without a wait for ", loading(w, *p.by)));
  }
}

void WaitCheck::before(const Wave& w, const Inst& in, const Uses& u) {
  if (pending_ == 0) return;
  for (const auto& r : u.vector_reads) read(w, in, vector_.data(), r, 'v');
  for (const auto& r : u.scalar_reads) read(w, in, scalar_.data(), r, 's');
  for (const auto& r : u.vector_writes) overwrite(w, in, u, vector_.data(), r, 'v');
  for (const auto& r : u.scalar_writes) overwrite(w, in, u, scalar_.data(), r, 's');
}

void WaitCheck::push(Counter counter, const Inst& in, const Uses& u, bool ordered, bool lds,
                     bool has_result) {
  Queue& q = queues_[static_cast<size_t>(counter)];
  Operation op{.ordered = ordered, .lds = lds, .to_lds = (in.flags & kToLds) != 0, .serial = ++serial_};
  if (has_result) {
    const auto mark = [&](Pending* file, const Uses::Registers& r, bool vector) {
      op.registers = r;
      op.vector = vector;
      for (uint32_t i = r.first; i < uint32_t{r.first} + r.count; ++i) {
        if (!file[i].by) ++pending_;
        file[i] = {&in, serial_, counter, ordered, lds};
      }
    };
    for (const auto& r : u.vector_writes) mark(vector_.data(), r, true);
    for (const auto& r : u.scalar_writes) mark(scalar_.data(), r, false);
  }
  if (lds) ++lds_.issued, ++lds_.open;
  if (op.to_lds) ++loads_.issued, ++loads_.open;
  if (!ordered) ++q.unordered;
  q.open.push_back(op);
}

void WaitCheck::end(const Operation& op) {
  for (uint32_t i = op.registers.first; i < uint32_t{op.registers.first} + op.registers.count; ++i) {
    Pending& p = op.vector ? vector_[i] : scalar_[i];
    if (!p.by || p.serial != op.serial) continue;
    p.by = nullptr;
    --pending_;
  }
  if (op.lds) --lds_.open;
  if (op.to_lds) --loads_.open;
}

void WaitCheck::wait(Counter counter, uint32_t left) {
  Queue& q = queues_[static_cast<size_t>(counter)];
  if (q.open.size() <= left) return;
  if (left == 0) {
    for (const Operation& op : q.open) end(op);
    q.open.clear();
    q.unordered = 0;
    return;
  }
  const size_t ended = q.open.size() - left;
  if (ended <= q.unordered) return;
  size_t sure = ended - q.unordered;  // of the ordered ones
  for (auto at = q.open.begin(); at != q.open.end() && sure > 0;) {
    if (!at->ordered) {
      ++at;
      continue;
    }
    end(*at);
    at = q.open.erase(at);
    --sure;
  }
}

void WaitCheck::after(const Inst& in, const Uses& u, const Target& target, bool in_lds) {
  for (size_t c = 0; c < kCounters; ++c)
    if (u.waits[c] >= 0) wait(static_cast<Counter>(c), static_cast<uint32_t>(u.waits[c]));
  const bool result = u.vector_writes.size + u.scalar_writes.size > 0;
  switch (u.unit) {
    case Unit::kScalarMemory: push(u.counter, in, u, false, false, result); break;
    case Unit::kLds: push(u.counter, in, u, true, true, result); break;
    case Unit::kLoad:
    case Unit::kStore: push(u.counter, in, u, true, false, result); break;
    case Unit::kFlat:  // counts as both; the data comes from where the lanes pointed
      push(u.counter, in, u, !target.gfx9, false, result && !in_lds);
      push(Counter::kLds, in, u, !target.gfx9, true, result && in_lds);
      break;
    default: break;
  }
}

}  // namespace rocm_sd::emu
