#include "emulator/counting.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace rocm_sd::emu {

namespace {

constexpr uint32_t kBanks = 32;
constexpr uint64_t kLine = 64;

// The phases of ds_read_b128 on CDNA, eight lanes each (Composable Kernel's documentation of LDS): four
// neighbours and four of the other half of their 32. Lane of phase p at place i.
constexpr uint32_t wide_read_lane(uint32_t p, uint32_t i) {
  constexpr uint32_t kFirst[4] = {0, 4, 8, 12}, kSecond[4] = {20, 16, 28, 24};
  const uint32_t base = p / 4 * 32;
  return base + (i < 4 ? kFirst[p % 4] + i : kSecond[p % 4] + i - 4);
}

}  // namespace

void AccessCount::operator+=(const AccessCount& o) {
  executions += o.executions;
  lines64 += o.lines64;
  lines128 += o.lines128;
  useful += o.useful;
  lds_cycles += o.lds_cycles;
  lds_conflicts += o.lds_conflicts;
  lds_bytes += o.lds_bytes;
}

LdsCycles lds_cycles(std::span<const uint32_t, 64> offset, const uint32_t (&active)[2], uint32_t bytes,
                     bool cdna_read) {
  const uint32_t dwords = (bytes + 3) / 4, size = dwords > 2 ? 8 : dwords == 2 ? 16 : 32;
  LdsCycles out;
  for (uint32_t phase = 0; phase < 64 / size; ++phase) {
    std::array<uint32_t, 128> touched;  // bank, then dword; 32 lanes of at most two, or fewer of more
    size_t used = 0;
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t lane = cdna_read && dwords == 4 ? wide_read_lane(phase, i) : phase * size + i;
      if (!(active[lane / kRow] >> (lane % kRow) & 1)) continue;
      for (uint32_t d = offset[lane] / 4; d <= (offset[lane] + bytes - 1) / 4; ++d)
        touched[used++] = d % kBanks << 27 | d;
    }
    std::sort(touched.begin(), touched.begin() + used);
    uint32_t all = 0, worst = 0, here = 0;
    for (size_t i = 0; i < used; ++i) {
      if (i > 0 && touched[i] == touched[i - 1]) continue;  // lanes that read one dword share it
      here = i > 0 && touched[i] >> 27 == touched[i - 1] >> 27 ? here + 1 : 1;
      worst = std::max(worst, here);
      ++all;
    }
    out.cycles += worst;
    out.least += (all + kBanks - 1) / kBanks;
  }
  return out;
}

AccessMeter::AccessMeter(const Program& program, std::span<const Range> ranges)
    : counts(program.code.size()), first_(program.code.data()), cdna_(program.target.gfx9), ranges_(ranges) {
  uint64_t bits = 0;
  for (const Range& r : ranges) {
    first_bit_.push_back(bits);
    bits += (r.end - 1) / kLine - r.begin / kLine + 1;
  }
  read_.resize((bits + 63) / 64);
  written_.resize((bits + 63) / 64);
}

void AccessMeter::mark(uint64_t line, bool write) {
  const uint64_t address = line * kLine;
  const auto holds = [&](const Range& r) { return address + kLine > r.begin && address < r.end; };
  if (last_range_ >= ranges_.size() || !holds(ranges_[last_range_])) {
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address + kLine - 1,
                                        [](uint64_t a, const Range& r) { return a < r.begin; });
    if (after == ranges_.begin() || !holds(*(after - 1))) return;
    last_range_ = static_cast<size_t>(after - 1 - ranges_.begin());
  }
  const uint64_t bit = first_bit_[last_range_] + line - ranges_[last_range_].begin / kLine;
  (write ? written_ : read_)[bit / 64] |= uint64_t{1} << (bit % 64);
}

void AccessMeter::global(const Wave& w, const Inst& in, const Pointers& p, uint32_t bytes) {
  AccessCount& count = counts[static_cast<size_t>(&in - first_)];
  std::array<uint64_t, 128> lines;
  size_t used = 0;
  const uint8_t* scratch_end = w.scratch + size_t{w.lanes} * w.scratch_bytes;
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if ((at >= w.lds && at < w.lds + w.lds_bytes) || (at >= w.scratch && at < scratch_end)) return;
      const auto address = reinterpret_cast<uint64_t>(at);
      lines[used++] = address / kLine;
      if ((address + bytes - 1) / kLine != address / kLine) lines[used++] = (address + bytes - 1) / kLine;
      count.useful += bytes;
    });
  if (used == 0) return;
  ++count.executions;
  std::sort(lines.begin(), lines.begin() + used);
  const bool writes = in.flags & kStores, reads = !writes || in.flags & kAtomic;
  for (size_t i = 0; i < used; ++i) {
    if (i > 0 && lines[i] == lines[i - 1]) continue;
    ++count.lines64;
    if (i == 0 || lines[i] / 2 != lines[i - 1] / 2) ++count.lines128;
    if (reads) mark(lines[i], false);
    if (writes) mark(lines[i], true);
  }
}

void AccessMeter::lds(const Wave& w, const Inst& in, const Pointers& p, uint32_t bytes) {
  AccessCount& count = counts[static_cast<size_t>(&in - first_)];
  std::array<uint32_t, 64> offset;
  uint32_t active[2] = {};
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if (at < w.lds || at >= w.lds + w.lds_bytes) return;  // a flat access elsewhere
      offset[h * kRow + l] = static_cast<uint32_t>(at - w.lds);
      active[h] |= 1u << l;
      count.lds_bytes += bytes;
    });
  const LdsCycles cycles = lds_cycles(offset, active, bytes, cdna_ && !(in.flags & kStores));
  count.lds_cycles += cycles.cycles;
  count.lds_conflicts += cycles.cycles - cycles.least;
}

void AccessMeter::join(const AccessMeter& other) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  for (size_t i = 0; i < read_.size(); ++i) read_[i] |= other.read_[i];
  for (size_t i = 0; i < written_.size(); ++i) written_[i] |= other.written_[i];
}

DistinctLines AccessMeter::distinct() const {
  DistinctLines out;
  for (const uint64_t word : read_) out.read += static_cast<uint64_t>(std::popcount(word));
  for (const uint64_t word : written_) out.written += static_cast<uint64_t>(std::popcount(word));
  return out;
}

}  // namespace rocm_sd::emu
