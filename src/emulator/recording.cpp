#include "emulator/recording.hpp"

#include <algorithm>
#include <array>

#include "emulator/counting.hpp"
#include "emulator/resident.hpp"

namespace rocm_sd::emu {

namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kScratchLines = uint64_t{1} << 60;  // numbers of lines that are no host addresses

bool inside(const uint8_t* at, const uint8_t* begin, size_t bytes) {
  return at >= begin && at < begin + bytes;
}

}  // namespace

void Recorder::step(const Wave& w, const Inst& in) {
  auto& steps = into_.waves[w.index];
  steps.push_back({static_cast<uint32_t>(&in - program_.code.data()), 0});
  current_ = &steps.back();
}

RecordedAccess& Recorder::access() {
  if (current_->access == 0) {
    into_.accesses.push_back({.first = static_cast<uint32_t>(into_.lines.size())});
    current_->access = static_cast<uint32_t>(into_.accesses.size());
  }
  return into_.accesses[current_->access - 1];
}

void Recorder::add_lines(std::span<uint64_t> lines) {
  RecordedAccess& a = access();
  std::sort(lines.begin(), lines.end());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0 && lines[i] == lines[i - 1]) continue;
    into_.lines.push_back(lines[i]);
    ++a.lines;
  }
}

void Recorder::global(const Wave& w, const Inst&, const Pointers& p, uint32_t bytes) {
  std::array<uint64_t, 128> lines;
  size_t used = 0;
  uint32_t useful = 0;
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if (inside(at, w.lds, w.lds_bytes) || inside(at, w.scratch, size_t{w.lanes} * w.scratch_bytes)) return;
      const auto address = reinterpret_cast<uint64_t>(at);
      lines[used++] = address / kLine;
      if ((address + bytes - 1) / kLine != address / kLine) lines[used++] = (address + bytes - 1) / kLine;
      useful += bytes;
    });
  if (used == 0) return;
  ++global_;
  access().bytes += useful;
  add_lines(std::span(lines).first(used));
}

void Recorder::lds(const Wave& w, const Inst& in, const Pointers& p, uint32_t bytes) {
  std::array<uint32_t, 64> offset;
  uint32_t active[2] = {};
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if (!inside(at, w.lds, w.lds_bytes)) return;  // a flat access elsewhere
      offset[h * kRow + l] = static_cast<uint32_t>(at - w.lds);
      active[h] |= 1u << l;
    });
  if (!(active[0] | active[1])) return;
  const bool cdna_read = program_.target.gfx9 && !(in.flags & kStores);
  access().lds_cycles += lds_cycles(offset, active, bytes, cdna_read).cycles;
}

// Scratch lies in memory dword by dword, the lanes of a wave side by side.
void Recorder::scratch(const Wave& w, const Pointers& p, uint32_t bytes) {
  std::array<uint64_t, 256> lines;
  size_t used = 0;
  uint32_t useful = 0;
  const uint64_t wave = kScratchLines + ((into_.group * 32 + w.index) << 24);
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if (!inside(at, w.scratch, size_t{w.lanes} * w.scratch_bytes)) return;
      const uint32_t lane = h * kRow + l;
      const auto offset = static_cast<uint64_t>(at - w.scratch) - uint64_t{lane} * w.scratch_bytes;
      for (uint64_t d = offset / 4; d <= (offset + bytes - 1) / 4; ++d)
        if (used < lines.size()) lines[used++] = wave + (d * w.lanes + lane) * 4 / kLine;
      useful += bytes;
    });
  if (used == 0) return;
  access().bytes += useful;
  add_lines(std::span(lines).first(used));
}

GroupRecord record_group(const LaunchPlan& plan, uint64_t index, const RecordLimits& limits) {
  constexpr int kPatience = 4096;  // turns of its waves without an end
  GroupRecord out{.group = index};
  out.waves.resize(plan.waves);
  Recorder recorder(plan.program, out);
  const Options options;
  Resident group(plan, options, nullptr, &recorder);
  group.start(index);
  std::vector<uint64_t> accesses(plan.waves);  // to global memory, by each wave
  const auto turn = [&](Wave& w) {
    w.state = State::kRunning;
    const uint64_t before = recorder.global_accesses() - accesses[w.index];
    do {
      const Inst& in = *w.pc++;
      recorder.step(w, in);
      in.run(w, in);
      const bool over =
          out.waves[w.index].size() >= limits.steps || recorder.global_accesses() - before >= limits.accesses;
      if (over && w.state != State::kDone) {
        require<UsageError>(limits.cut, "kernel ", plan.kernel.name, ": a wave runs more than ", limits.steps,
                            " instructions, which is more than is recorded");
        out.whole = false;
        w.state = State::kDone;
      }
    } while (w.state == State::kRunning);
    accesses[w.index] = recorder.global_accesses() - before;
  };
  uint32_t alive = plan.waves;
  for (int turns = 0; alive > 0; ++turns) {
    require<UsageError>(turns < kPatience, "kernel ", plan.kernel.name,
                        ": its groups wait for each other; they cannot be recorded one by one");
    uint32_t waiting = 0;
    alive = 0;
    for (Wave& w : group.waves) {
      if (w.state == State::kYield) turn(w);
      if (w.state != State::kDone) ++alive;
      if (w.state == State::kBarrier) ++waiting;
    }
    if (waiting < alive) continue;
    if (waiting > 0) turns = 0;
    for (Wave& w : group.waves)
      if (w.state == State::kBarrier) w.state = State::kYield;
  }
  return out;
}

}  // namespace rocm_sd::emu
