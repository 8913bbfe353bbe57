// The sums of a Winograd convolution: planes of products in a wave's registers, and their way through LDS to
// the output pixels.
#pragma once

#include "composable_kernels/tile/channels.hpp"
#include "composable_kernels/tile/register_tile.hpp"
#include "composable_kernels/tile/winograd_window.hpp"

namespace rocm_sd {

// Filters as the waves read them: [plane][outputs / 16][channels / 8][16 outputs][8 channels], outputs and
// channels padded with zeros to whole workgroups and steps.
struct WinogradFilter {
  const Half* data;
  int32_t output_blocks, eighths;  // of 16 outputs; of 8 channels

  ROCM_SD_DEVICE int64_t at(int plane, int block) const {
    return (static_cast<int64_t>(plane) * output_blocks + block) * eighths * 128;
  }
};

// A wave's planes: sums of [channels][tiles] each.
template <class Arch, class Cfg>
struct WinogradSums {
  RegTile<Atom<Arch, Half>, Cfg::kChannels, Cfg::kTiles> planes[Cfg::kWavePlanes];
};
template <class Arch, class Cfg>
ROCM_SD_DEVICE int winograd_first_plane() {
  return Arch::uniform(Arch::thread() / Arch::lanes) * Cfg::kWavePlanes;
}

// A wave's part of the filters, as fragments of 16 outputs and 16 channels of a plane.
template <class Arch, class Cfg>
class WinogradWeights {
  using A = typename Atom<Arch, Half>::A;
  static constexpr int kBlocks = Cfg::kChannels / 16;

  const Half* from_;
  int64_t block_, plane_;  // from 16 outputs, from a plane to the next
  A fragments_[kBlocks];

 public:
  // first_block: of 16 outputs.
  ROCM_SD_DEVICE WinogradWeights(const WinogradFilter& filter, int first_block)
      : from_(filter.data + filter.at(winograd_first_plane<Arch, Cfg>(), first_block)),
        block_(filter.at(0, 1)),
        plane_(filter.at(1, 0)) {
    unrolled<kBlocks>([&](int i) { load(i, 0, 0); });
  }
  // Of 16 outputs: the next fragment, of the wave's plane and of 16 channels from k on.
  ROCM_SD_DEVICE void load(int i, int plane, int k) {
    const Half* const from = from_ + i * block_ + plane * plane_ + static_cast<int64_t>(k / 8) * 128;
    fragments_[i] = WinogradUnit<Arch>::load_a(from);
  }
  ROCM_SD_DEVICE const A& operator[](int i) const { return fragments_[i]; }
};

// sums += weights x windows over the step that begins with channel k, whose windows are in LDS. next_k: of
// the step after it, or k where there is none; its first weights are asked for here.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void winograd_multiply(WinogradSums<Arch, Cfg>& sums, WinogradWeights<Arch, Cfg>& weights,
                                      const Half* windows, int k, int next_k) {
  constexpr int kPlanes = Cfg::kWavePlanes, kColumns = Cfg::kTiles / 16;
  constexpr int kParts = kPlanes * (kWinogradDepth / 16);  // of a step: its planes, 16 of depth each
  windows += winograd_first_plane<Arch, Cfg>() * Cfg::kPlane;
  unrolled<kParts>([&](int part) {
    const int plane = part % kPlanes, deep = part / kPlanes;
    const int next = part + 1 < kParts ? k + (part + 1) / kPlanes * 16 : next_k;
    unrolled<kColumns>([&](int j) {
      const auto window = WinogradUnit<Arch>::load_b([&](int column, int piece) {
        return windows + plane * Cfg::kPlane + winograd_piece(16 * j + column, 2 * deep + piece);
      });
      unrolled<Cfg::kChannels / 16>([&](int i) {
        Atom<Arch, Half>::mma(sums.planes[plane].atoms[j][i], weights[i], window);
        if (j + 1 == kColumns) weights.load(i, (part + 1) % kPlanes, next);
      });
    });
    Arch::fence_schedule();  // the weights' loads stay ahead of the next part
  });
}

// Sums of 16 tiles and 32 channels in LDS: [plane][tile][8 units of four channels]. Unit u of a tile lies at
// u ^ tile % 8: eight lanes that write one unit of eight tiles, or read four units of tiles 4 apart, use
// every bank once. The two units of 8 channels lie 4 apart; where a lane of the atom holds every other
// channel, a unit is those.
template <class Arch>
struct WinogradStage {
  using Atom = rocm_sd::Atom<Arch, Half>;
  static constexpr int row_step() {
    if constexpr (requires { Atom::kRowStep; })
      return Atom::kRowStep;
    else
      return 1;
  }
  // Of channel e of 8.
  static ROCM_SD_DEVICE constexpr int unit_of(int e) { return row_step() == 2 ? e % 2 : e / 4; }
  static ROCM_SD_DEVICE constexpr int in_unit(int e) { return row_step() == 2 ? e / 2 : e % 4; }
  static ROCM_SD_DEVICE constexpr int unit_at(int plane, int tile, int unit) {
    return ((plane * 16 + tile) * 8 + (unit ^ (tile % 8))) * 4;
  }

  static ROCM_SD_DEVICE void write(float* lds, int plane, int channel, const typename Atom::C& c) {
    constexpr int kCount = static_cast<int>(sizeof(c.x) / sizeof(c.x[0]));
    if constexpr (Arch::kStagesHalves) {
      unrolled<kCount / 4>([&](int n) {
        const int i = 4 * n, at = channel + Atom::row(i);
        store_four(lds + unit_at(plane, Atom::column(i), unit_of(at % 8) * 4 + at / 8),
                   {c.x[i], c.x[i + 1], c.x[i + 2], c.x[i + 3]});
      });
    } else {
      unrolled<kCount>([&](int i) {
        const int at = channel + Atom::row(i);
        lds[unit_at(plane, Atom::column(i), unit_of(at % 8) * 4 + at / 8) + in_unit(at % 8)] = c.x[i];
      });
    }
  }
  // v += factor * channels 8 piece .. + 7 of a tile.
  static ROCM_SD_DEVICE void add(Channels& v, float factor, const float* lds, int plane, int tile,
                                 int piece) {
    const FourFloats units[2] = {load_four(lds + unit_at(plane, tile, piece)),
                                 load_four(lds + unit_at(plane, tile, 4 + piece))};
    unrolled<kChannels>([&](int e) { v[e] += factor * units[unit_of(e)].x[in_unit(e)]; });
  }
};

// The sums of stage `stage` of Cfg::kStages to LDS: 16 tiles, 32 channels; channels first. A branch each, of
// constants: sums by a number that the compiler does not know would lie in memory.
template <class Arch, class Cfg, int kStage = 0>
ROCM_SD_DEVICE void winograd_stage(float* lds, const WinogradSums<Arch, Cfg>& sums, int stage) {
  constexpr int kParts = Cfg::kChannels / Cfg::kStageChannels, kBlocks = Cfg::kStageChannels / 16;
  if (stage == kStage) {
    ROCM_SD_UNROLL
    for (int p = 0; p < Cfg::kWavePlanes; ++p) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kBlocks; ++i)
        WinogradStage<Arch>::write(lds, winograd_first_plane<Arch, Cfg>() + p, 16 * i,
                                   sums.planes[p].atoms[kStage / kParts][kStage % kParts * kBlocks + i]);
    }
    WinogradUnit<Arch>::keep_apart(kStage);
  } else if constexpr (kStage + 1 < Cfg::kStages) {
    winograd_stage<Arch, Cfg, kStage + 1>(lds, sums, stage);
  }
}

}  // namespace rocm_sd
