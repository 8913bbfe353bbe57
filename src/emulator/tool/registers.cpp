#include "emulator/tool/registers.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "emulator/lanes.hpp"

namespace rocm_sd::emu {

namespace {

constexpr uint32_t kAccumulators = 256;  // row of a0
constexpr uint16_t kShown[] = {kVcc, kVcc + 1, kM0, kExec, kExec + 1, kScc};

std::string scalar_name(uint32_t reg) {
  switch (reg) {
    case kVcc: return "vcc_lo";
    case kVcc + 1: return "vcc_hi";
    case kM0: return "m0";
    case kExec: return "exec_lo";
    case kExec + 1: return "exec_hi";
    case kScc: return "scc";
    default: break;
  }
  if (reg >= kTtmp && reg < kTtmp + 16) return concat("ttmp", reg - kTtmp);
  return concat("s", reg);
}

std::string vector_text(const Wave& w, uint32_t row) {
  std::string out = row < kAccumulators ? concat("v", row) : concat("a", row - kAccumulators);
  const auto lane = [&](uint32_t l) { return w.rows[(l / kRow) * w.half_stride + row * kRow + l % kRow]; };
  bool same = true;
  for (uint32_t l = 1; l < w.lanes; ++l) same = same && lane(l) == lane(0);
  out += fmt::format(" = {:08x}", lane(0));
  if (same) return out + " in every lane";
  for (uint32_t l = 1; l < w.lanes; ++l) out += fmt::format(" {:08x}", lane(l));
  return out;
}

// Rows that the kernel has: its metadata's, else all.
uint32_t vgprs(const Kernel& k) {
  return k.vgprs ? std::min(k.vgprs - std::min(k.vgprs, k.agprs), 256u) : 256;
}
uint32_t agprs(const Kernel& k, const CodeObject& code) {
  if (!code.program().target.accumulators) return 0;
  return k.vgprs ? std::min(k.agprs, 256u) : 256;
}
uint32_t sgprs(const Kernel& k) { return k.sgprs ? std::min(k.sgprs, 106u) : 106; }

template <class Use>
void each_row(const Kernel& k, const CodeObject& code, Use use) {
  for (uint32_t r = 0; r < vgprs(k); ++r) use(r);
  for (uint32_t r = 0; r < agprs(k, code); ++r) use(kAccumulators + r);
}

// "s3 = 0000002a" of every register that the kernel has.
template <class Use>
void each_text(const Wave& w, const CodeObject& code, const Kernel& kernel, Use use) {
  const auto scalar = [&](uint32_t reg) { use(fmt::format("{} = {:08x}", scalar_name(reg), w.sgpr[reg])); };
  for (const uint16_t reg : kShown) scalar(reg);
  for (uint32_t reg = 0; reg < sgprs(kernel); ++reg) scalar(reg);
  if (code.program().target.gfx12)
    for (uint32_t i = 0; i < 16; ++i) scalar(kTtmp + i);
  each_row(kernel, code, [&](uint32_t row) { use(vector_text(w, row)); });
}

}  // namespace

std::string all_registers(const Wave& w, const CodeObject& code, const Kernel& kernel) {
  const uint64_t offset = w.pc->address - code.base();
  const auto source = code.source_line(offset);
  std::string out = fmt::format("group ({}, {}, {}) wave {} before {:#x}{}: {}\n", w.group->id[0],
                                w.group->id[1], w.group->id[2], w.index, offset,
                                source ? " (" + *source + ")" : "", code.program().texts[w.pc->text]);
  each_text(w, code, kernel, [&](const std::string& text) { out += text + "\n"; });
  return out;
}

WaveTracer::WaveTracer(const CodeObject& code, const Kernel& kernel, std::array<uint32_t, 3> group,
                       uint32_t wave, std::function<void(const std::string&)> sink)
    : code_(code), kernel_(kernel), group_(group), wave_(wave), sink_(std::move(sink)) {}

bool WaveTracer::follows(const Wave& w) const {
  return w.index == wave_ && std::equal(group_.begin(), group_.end(), w.group->id);
}

void WaveTracer::before(const Wave& w) {
  if (!follows(w)) return;
  if (!seen_) {
    sink_(fmt::format("start of wave {} of group ({}, {}, {})", w.index, group_[0], group_[1], group_[2]));
    each_text(w, code_, kernel_, [&](const std::string& text) { sink_("    " + text); });
  }
  seen_ = true;
  scalars_.assign(std::begin(w.sgpr), std::end(w.sgpr));
  rows_.clear();
  each_row(kernel_, code_, [&](uint32_t row) {
    for (uint32_t h = 0; h < w.halves; ++h) {
      const uint32_t* first = w.rows + h * w.half_stride + row * kRow;
      rows_.insert(rows_.end(), first, first + kRow);
    }
  });
}

void WaveTracer::after(const Wave& w, const Inst& inst, std::string_view text) {
  if (!follows(w)) return;
  const uint64_t offset = inst.address - code_.base();
  const std::string source = code_.source_line(offset).value_or(source_);
  if (source != source_) sink_("; " + source);
  source_ = source;
  sink_(fmt::format("{:>8x}:  {}", offset, text));
  const auto scalar = [&](uint32_t reg) {
    if (w.sgpr[reg] != scalars_[reg]) sink_(fmt::format("    {} = {:08x}", scalar_name(reg), w.sgpr[reg]));
  };
  for (uint32_t reg = 0; reg < 106; ++reg) scalar(reg);
  for (const uint16_t reg : kShown) scalar(reg);
  size_t at = 0;
  each_row(kernel_, code_, [&](uint32_t row) {
    bool changed = false;
    for (uint32_t h = 0; h < w.halves; ++h, at += kRow)
      changed =
          changed || !std::equal(&rows_[at], &rows_[at] + kRow, w.rows + h * w.half_stride + row * kRow);
    if (changed) sink_("    " + vector_text(w, row));
  });
}

}  // namespace rocm_sd::emu
