#include "emulator/memory_side.hpp"

#include <algorithm>

namespace rocm_sd::emu {

namespace {

// Enters a queue at `at`; when the last byte has left it.
double pass(double& free, double at, double bytes, double rate) {
  free = std::max(free, at) + bytes / rate;
  return free;
}
// True for `share` of the calls, evenly spread.
bool falls(double& carry, double share) {
  carry += share;
  if (carry < 1 - 1e-9) return false;
  carry -= 1;
  return true;
}

}  // namespace

double MemorySide::begin(double at, size_t lines, uint32_t bytes, double least) {
  const double start = std::max(at, free_);
  const double cycles =
      std::max({static_cast<double>(lines) * kLine, static_cast<double>(bytes), least * machine_.l0_bytes}) /
      machine_.l0_bytes;
  free_ = start + cycles;
  busy += cycles;
  return start;
}

// A line from the card's memory. Lines are written back where no line is asked for, and before that only what
// the caches can't keep: memory controllers and caches put reads before writes.
double MemorySide::pass_memory(double at) {
  const double idle = std::max(0.0, at - queues_.memory) * share_.memory_bytes;
  queues_.owed = std::max(0.0, queues_.owed - idle);
  const double too_many = std::max(0.0, queues_.owed - share_.write_room);
  queues_.owed -= too_many;
  return pass(queues_.memory, at, kLine + too_many, share_.memory_bytes);
}

// A line that the vector cache lacks.
double MemorySide::fetch(double at) {
  ++missed;
  double t = pass(port_, at, kLine, machine_.request_bytes);
  t = pass(queues_.l2, t, kLine, share_.l2_bytes);
  if (!falls(queues_.carry_l2, share_.past_l2)) return t + share_.l2_latency;
  if (has_last_level_) {
    t = pass(queues_.last_level, t, kLine, share_.last_level_bytes);
    if (!falls(queues_.carry_last, share_.past_last_level)) return t + share_.last_level_latency;
  } else if (!falls(queues_.carry_last, share_.past_last_level)) {
    return t + share_.l2_latency;
  }
  ++queues_.from_memory;
  return pass_memory(t) + share_.memory_latency;
}

double MemorySide::load(double at, std::span<const uint64_t> lines, uint32_t bytes, double least) {
  const double start = begin(at, lines.size(), bytes, least);
  double done = free_ + machine_.l0_latency;
  for (size_t i = 0; i < lines.size(); ++i) {
    const double now = start + static_cast<double>(i) * kLine / machine_.l0_bytes;
    ++asked;
    Held& held = lines_[lines[i]];
    if (held.serial == 0 || held.serial + capacity_ <= serial_) held = {++serial_, fetch(now)};
    done = std::max(done, held.ready + kLine / machine_.l0_bytes);
  }
  if (lines_.size() > 8 * capacity_)
    std::erase_if(lines_, [&](const auto& entry) { return entry.second.serial + capacity_ <= serial_; });
  return done;
}

double MemorySide::store(double at, std::span<const uint64_t> lines, uint32_t bytes, double least) {
  const double start = begin(at, lines.size(), bytes, least);
  double done = start;
  for (size_t i = 0; i < lines.size(); ++i) {
    ++stored;
    double t = pass(port_, start, kLine, machine_.request_bytes);
    t = pass(queues_.l2, t, kLine, share_.l2_bytes);
    done = std::max(done, t + share_.l2_latency);
    // Written back some time later: nobody waits for it, but it takes its bandwidth.
    if (falls(queues_.carry_stores, share_.stores_past)) queues_.owed += kLine;
  }
  return done;
}

}  // namespace rocm_sd::emu
