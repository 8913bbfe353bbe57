#include "emulator/wrappers.hpp"

#include "emulator/lanes.hpp"
#include "emulator/program.hpp"

namespace rocm_sd::emu {

void run_dpp(Wave& w, const Inst& in) {
  const LaneMap& map = *in.lanes;
  const uint64_t exec = w.sgpr[kExec] | (w.halves == 2 ? static_cast<uint64_t>(w.sgpr[kExec + 1]) << 32 : 0);
  uint64_t enabled = 0;
  // Every lane is read before any is written: the destination may be the source.
  const uint32_t dwords = in.src[0].dwords;
  for (uint32_t lane = 0; lane < w.lanes; ++lane) {
    const int from = map.from[lane];
    const bool readable =
        from >= 0 && from < static_cast<int>(w.lanes) && (map.fetch_inactive || (exec >> from & 1));
    for (uint32_t d = 0; d < dwords; ++d)
      w.permuted[d * 64 + lane] =
          readable ? ROCM_SD_ISA::vgpr(w, in.src[0].reg + d, static_cast<uint32_t>(from) >> 5)[from & 31] : 0;
    if (readable || map.bound_zero) enabled |= 1ull << lane;
  }
  enabled &= exec & map.write_mask;
  w.sgpr[kExec] = static_cast<uint32_t>(enabled);
  if (w.halves == 2) w.sgpr[kExec + 1] = static_cast<uint32_t>(enabled >> 32);
  in.inner(w, in);
  if (in.flags & kWritesExec) return;  // what it wrote are lanes of those enabled
  w.sgpr[kExec] = static_cast<uint32_t>(exec);
  if (w.halves == 2) w.sgpr[kExec + 1] = static_cast<uint32_t>(exec >> 32);
}

void run_sdwa(Wave& w, const Inst& in) {
  alignas(64) uint32_t old[64];
  for (uint32_t h = 0; h < w.halves; ++h) {
    const uint32_t* row = ROCM_SD_ISA::vgpr(w, in.dst.reg, h);
    ROCM_SD_LANES old[h * kRow + l] = row[l];
  }
  in.inner(w, in);
  const uint32_t select = in.sdwa_dst;
  const bool byte = select <= kByte3;
  const uint32_t shift = byte ? (select - kByte0) * 8 : select == kWord1 ? 16 : 0;
  const uint32_t width = byte ? 8 : 16, mask = ((1u << width) - 1) << shift;
  for (uint32_t h = 0; h < w.halves; ++h) {
    uint32_t* row = ROCM_SD_ISA::vgpr(w, in.dst.reg, h);
    const uint32_t exec = ROCM_SD_ISA::exec_of(w, h);
    ROCM_SD_LANES {
      const uint32_t part = row[l] << shift & mask;
      uint32_t rest = 0;
      if (in.sdwa_unused == 2) rest = old[h * kRow + l] & ~mask;
      if (in.sdwa_unused == 1 && row[l] >> (width - 1) & 1) rest = ~mask & ~((1u << shift) - 1);
      row[l] = exec >> l & 1 ? part | rest : row[l];
    }
  }
}

void run_unknown(Wave& w, const Inst& in) {
  fault(w, in, in.flags & kSecond ? "not an instruction" : "not implemented");
}

}  // namespace rocm_sd::emu
