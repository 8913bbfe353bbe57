#include "emulator/resident.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "emulator/checker.hpp"

namespace rocm_sd::emu {

namespace {

template <class T>
Resident::Block<T> aligned_block(size_t count) {
  const size_t bytes = (std::max<size_t>(count, 1) * sizeof(T) + 63) / 64 * 64;
  Resident::Block<T> out(static_cast<T*>(std::aligned_alloc(64, bytes)));
  require<OutOfMemoryError>(out != nullptr, "emulated GPU: no memory for ", bytes, " bytes of registers");
  return out;
}

}  // namespace

std::string place_of(const Wave& w, const Inst& in) {
  const std::string& text = w.program->texts[in.text];
  const uint64_t offset = in.address - w.group->image;
  const SourceLine source = w.program->lines ? w.program->lines->at(offset) : SourceLine{};
  const std::string line = source.line ? concat(" (", printable(source.file), ":", source.line, ")") : "";
  return concat("`", text.empty() ? "(no instruction)" : printable(text), "` at 0x",
                fmt::format("{:x}", offset), line, ", group (", w.group->id[0], ", ", w.group->id[1], ", ",
                w.group->id[2], ") wave ", w.index);
}

Resident::Resident(const LaunchPlan& of, const Options& options, AccessMeter* meter, Recorder* recorder)
    : plan(of), waves(of.waves) {
  const uint32_t halves = plan.lanes / kRow;
  rows = aligned_block<uint32_t>(size_t{plan.waves} * halves * kRows * kRow);
  lds = aligned_block<uint8_t>(plan.lds_bytes);
  scratch = aligned_block<uint8_t>(size_t{plan.waves} * plan.lanes * plan.scratch_bytes);
  group.meter = meter;
  group.recorder = recorder;
  if (options.check) {
    check =
        std::make_unique<Checker>(plan.program, plan.waves, plan.lanes, plan.lds_bytes, plan.scratch_bytes);
    group.check = check.get();
  }
  group.ranges = plan.ranges;
  group.kernel = plan.kernel.name;
  group.image = plan.base;
  for (uint32_t i = 0; i < plan.waves; ++i) {
    Wave& w = waves[i];
    w.halves = halves;
    w.lanes = plan.lanes;
    w.half_stride = kRows * kRow;
    w.rows = rows.get() + size_t{i} * halves * kRows * kRow;
    w.program = &plan.program;
    w.group = &group;
    w.lds = lds.get();
    w.lds_bytes = plan.lds_bytes;
    w.scratch_bytes = plan.scratch_bytes;
    w.scratch = scratch.get() + size_t{i} * plan.lanes * w.scratch_bytes;
  }
}

Resident::~Resident() = default;

void Resident::start(uint64_t index) {
  const Dim3& g = plan.launch.grid;
  group.id[0] = static_cast<uint32_t>(index % g.x);
  group.id[1] = static_cast<uint32_t>(index / g.x % g.y);
  group.id[2] = static_cast<uint32_t>(index / g.x / g.y);
  // LDS and scratch hold a pattern, not zeros: what reads them unwritten shows.
  std::fill_n(lds.get(), plan.lds_bytes, uint8_t{0xcd});
  std::fill_n(scratch.get(), size_t{plan.waves} * plan.lanes * plan.scratch_bytes, uint8_t{0xcd});
  for (uint32_t i = 0; i < plan.waves; ++i) plan.start_wave(waves[i], i);
  if (check) check->start_group(waves);
}

std::string Resident::stand(const Wave& w) const {
  const bool waits = w.state == State::kBarrier;
  return concat(place_of(w, waits ? w.pc[-1] : *w.pc), waits ? ": waits" : ": runs", ", ", w.instructions,
                " instructions so far");
}

}  // namespace rocm_sd::emu
