// Convolution on Hopper by workgroups that keep their filter in LDS: of few outputs, whose filter would
// otherwise be fetched as often as the pixels.
// Problem   as fused/convolution.hpp, without partial sums in memory
// Mapping   a workgroup has kBlockN outputs of one phase and takes boxes of 128 pixels in turn; a warpgroup
//           fetches, three multiply a box each, so that one's epilogue runs beside the others' products
// Traffic   the filter once a workgroup, by the consumers' async copies, while the kernel before is still at
//           work; of a box 64 channels at a time with what the taps reach around them, by TMA, as many ahead
//           as LDS has room for
// Numerics  as fused/convolution.hpp
// Limits    as hopper/convolution_tma.hpp with halos; one input of at most kDepth channels in whole blocks of 32,
//           outputs in whole blocks of kBlockN or fewer, filters of 2x2 and 3x3
#pragma once

#include "composable_kernels/fused/convolution.hpp"
#include "composable_kernels/hopper/tma_output.hpp"

namespace rocm_sd {

template <class Storage, TileShape kTileShape>
struct TmaResidentCfg : TmaPingPongCfg<Storage, kTileShape.block_n, kTileShape.stages> {
  static constexpr int kDepth = kTileShape.block_k;  // channels that there is room for
  static constexpr int kLdsBytes = kResidentLdsBytes, kThreads = kResidentThreads;
  static constexpr int kWarpgroups = 3, kConsumers = 128 * kWarpgroups;  // that multiply
  static constexpr int kFetchRegisters = 40, kMultiplyRegisters = 152;
  static_assert(kTileShape.block_m == 128 && kDepth % 64 == 0 && kThreads == kConsumers + 128);
  static_assert(resident_pixel_bytes(kTileShape) >= 2 * kHaloBytes);
};

// The boxes' pixels on their way, in the order of boxes and blocks of channels, kBytes of LDS each.
template <class Cfg, int kBytes>
class ResidentPixels {
 public:
  // LDS from `tiles`, aligned to 1024, to `end`, before which the barriers lie. Every thread, then a barrier
  // of all.
  ROCM_SD_DEVICE ResidentPixels(char* tiles, char* end) : tiles_(tiles), barriers_(end - 16 * Cfg::kStages) {
    const int room = static_cast<int>(barriers_ - tiles) / kBytes;
    stages_ = room < Cfg::kStages ? room : Cfg::kStages;
    if (Nvidia::thread() != 0) return;
    for (int s = 0; s < stages_; ++s) {
      full(s).init(1);
      empty(s).init(Cfg::kConsumerGroupThreads / 32);
    }
    Tma::publish_barriers();
  }
  // The producer: starts the next copy, which fetch(to, barrier) does.
  template <class Fetch>
  ROCM_SD_DEVICE void fetch(int bytes, const Fetch& fetch) {
    empty(stage_).wait(phase_ ^ 1);
    full(stage_).expect(bytes);
    fetch(tiles_ + stage_ * kBytes, full(stage_));
    advance();
  }
  // Consumers: waits for what is next.
  ROCM_SD_DEVICE const char* receive() const {
    full(stage_).wait(phase_);
    return tiles_ + stage_ * kBytes;
  }
  ROCM_SD_DEVICE int stage() const { return stage_; }
  ROCM_SD_DEVICE void release(int stage) const {
    if (Nvidia::lane() == 0) empty(stage).arrive();
  }
  ROCM_SD_DEVICE void advance() {
    if (++stage_ < stages_) return;
    stage_ = 0;
    phase_ ^= 1;
  }
  // Past so many, which are others'.
  ROCM_SD_DEVICE void skip(int count) {
    ROCM_SD_ROLLED
    for (int i = 0; i < count; ++i) advance();
  }

 private:
  ROCM_SD_DEVICE TmaBarrier full(int stage) const { return TmaBarrier(barriers_ + 16 * stage); }
  ROCM_SD_DEVICE TmaBarrier empty(int stage) const { return TmaBarrier(barriers_ + 16 * stage + 8); }

  char *const tiles_, *const barriers_;
  int stages_;
  int stage_ = 0;
  uint32_t phase_ = 0;
};

// Boxes with what a filter of kSide by kSide reaches around them, in bytes: 8 columns by 16 rows, or kPaired
// 8 by 8 of two images.
template <int kFilterSide, bool kTwoImages>
struct ResidentHalo {
  static constexpr int kSide = kFilterSide;
  static constexpr bool kPaired = kTwoImages;
  static constexpr int kPitch = (8 + kSide - 1) * 128;                            // from row to row
  static constexpr int kPart = (kPaired ? 8 + kSide - 1 : 8) * kPitch;            // to the last 64 pixels
  static constexpr int kBytes = kPaired ? 2 * kPart : (16 + kSide - 1) * kPitch;  // of 64 channels
  static constexpr int kStageBytes = (kBytes + 1023) / 1024 * 1024;
};

template <class Cfg, class Halo>
class ResidentConv {
  using T = typename Cfg::T;
  using Sums = Accumulators<Nvidia, Cfg>;  // of 64 pixels
  static constexpr int kParts = Cfg::kParts, kPairs = Cfg::kAtomsN / 2, kTileBytes = Cfg::kBlockN * 128;
  static constexpr int kTaps = Halo::kSide * Halo::kSide;

 public:
  // workgroup: of so many, a multiple of the phases and pieces of outputs.
  ROCM_SD_DEVICE ResidentConv(const TmaConvParams<T>& p, int workgroup, int workgroups, char* lds)
      : p_(p),
        channels_(p.conv.image.pieces[0] * 8),
        blocks_((channels_ + 63) / 64),
        boxes_(static_cast<int>(p.boxes.boxes())),
        filter_(lds + (1024 - static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024) % 1024),
        pixels_(filter_ + filter_bytes(), lds + Cfg::kLdsBytes) {
    const int pieces = (p.conv.epilogue.channels + Cfg::kBlockN - 1) / Cfg::kBlockN,
              kinds = pieces * p.conv.phases;
    const int kind = workgroup % kinds;
    phase_ = kind / pieces;
    first_channel_ = (kind - phase_ * pieces) * Cfg::kBlockN;
    first_box_ = workgroup / kinds;
    stride_ = workgroups / kinds;
  }

  // The consumers: rows of the filter in the order of TMA's permuted maps (hopper/tma_output.hpp), 128 bytes
  // of a block's channels under a tap each, swizzled as products read them.
  ROCM_SD_DEVICE void keep_filter() const {
    // Of the packed filter, whose blocks have 64 channels or 32.
    const int shift = p_.conv.image.block[0] == 8 ? 6 : 5;
    const int rows = blocks_ * kTaps * Cfg::kBlockN, outputs = p_.conv.epilogue.channels - first_channel_;
    const T* const from =
        p_.conv.filter + (int64_t{phase_} * p_.conv.epilogue.channels + first_channel_) * p_.conv.depth;
    const int piece = Nvidia::thread() % 8;
    // Workgroups begin at different taps: all at one would wait for the same part of the last cache.
    const int first = first_box_ * 5 % (blocks_ * kTaps) * Cfg::kBlockN;
    for (int at = Nvidia::thread() / 8; at < rows; at += Cfg::kConsumers / 8) {
      const int row = at + first < rows ? at + first : at + first - rows;
      const int tile = row / Cfg::kBlockN, n = row % Cfg::kBlockN;
      const int of_block = tile / kTaps, tap = tile % kTaps, channel = of_block * 64 + piece * 8;
      const int output = n / 32 * 32 + n / 2 % 4 * 8 + n / 8 % 4 * 2 + n % 2;
      const int k = (((channel >> shift) * kTaps + tap) << shift) + (channel & ((1 << shift) - 1));
      const bool valid = channel < channels_ && output < outputs;
      Nvidia::copy_async(filter_ + row * 128 + (piece ^ n % 8) * 16,
                         valid ? from + int64_t{output} * p_.conv.depth + k : from, valid);
    }
    Nvidia::commit_copies();
    Nvidia::wait_copies<0>();
    Warpgroup::publish();
    Tma::consumers_barrier<Cfg::kConsumers>();
  }

  // One thread.
  ROCM_SD_DEVICE void fetch() {
    for (int box = first_box_; box < boxes_; box += stride_) {
      const PixelBoxes::Pixel at = p_.boxes.corner(box);
      const int x = at.column - p_.conv.image.pad_left + phase_ % 2,
                y = at.row - p_.conv.image.pad_top + phase_ / 2;
      for (int block = 0; block < blocks_; ++block)
        pixels_.fetch(Halo::kBytes, [&](char* to, TmaBarrier full) {
          Tma::fetch_box(to, p_.x, full, block * 64, x, y, at.image);
        });
    }
  }

  // The consumer groups. One starts its products when the one before has started all of its own: until then,
  // what a stage's barrier says may be about an earlier box.
  ROCM_SD_DEVICE void multiply() {
    const int consumer = Nvidia::uniform(Nvidia::thread() / 128);
    if (consumer + 1 == Cfg::kWarpgroups) Tma::let_consumer_start(0);
    pixels_.skip(consumer * blocks_);
    for (int box = first_box_ + consumer * stride_; box < boxes_; box += Cfg::kWarpgroups * stride_) {
      Sums acc[kParts];
      Tma::wait_for_turn(consumer);
      start_products(acc);
      if (box + stride_ < boxes_) Tma::let_consumer_start(consumer + 1 < Cfg::kWarpgroups ? consumer + 1 : 0);
      Warpgroup::wait<0>();
      ROCM_SD_UNROLL
      for (int part = 0; part < kParts; ++part) settle(acc[part].atoms[0]);
      pixels_.release(pixels_.stage());
      pixels_.skip(1 + (Cfg::kWarpgroups - 1) * blocks_);  // the other consumer groups'
      finish(acc, box);
    }
  }

 private:
  // Of all blocks of channels, of which the last may be half one. Products alone define the sums in loops, or
  // they would wait for each other: the first replaces what they hold.
  ROCM_SD_DEVICE void start_products(Sums (&acc)[kParts]) {
    const int whole = channels_ / 64;
    uint32_t weights = Warpgroup::place(filter_);
    for (int block = 0; block < whole; ++block) {
      add_block<64>(acc, weights, block);
      weights += kTaps * kTileBytes >> 4;
    }
    if (whole < blocks_) add_block<32>(acc, weights, whole);
  }
  template <int kChannels>
  ROCM_SD_DEVICE void add_block(Sums (&acc)[kParts], uint32_t weights, int block) {
    const int before = pixels_.stage();
    if (block > 0) pixels_.advance();
    uint32_t rows = Warpgroup::place(pixels_.receive());
    ROCM_SD_ROLLED
    for (int down = 0; down < Halo::kSide; ++down) {
      Warpgroup::begin();
      ROCM_SD_UNROLL
      for (int right = 0; right < Halo::kSide; ++right)
        add_tap<kChannels>(acc, rows, weights, right, right + down + block);
      Warpgroup::commit();
      Warpgroup::wait<1>();  // all before
      if (block > 0 && down == 0) pixels_.release(before);
      rows += Halo::kPitch >> 4;
      weights += Halo::kSide * kTileBytes >> 4;
    }
  }
  // The tap that is `right` beside the first of its line. keep: 0 where the products replace what the sums
  // hold.
  template <int kChannels>
  static ROCM_SD_DEVICE void add_tap(Sums (&acc)[kParts], uint32_t rows, uint32_t weights, int right,
                                     int keep) {
    ROCM_SD_UNROLL
    for (int k = 0; k < kChannels / 16; ++k) ROCM_SD_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const uint64_t of_rows =
          Warpgroup::tile_at<Halo::kPitch>(rows + ((right * 128 + part * Halo::kPart + k * 32) >> 4));
      const uint64_t of_weights = Warpgroup::tile_at<1024>(weights + ((right * kTileBytes + k * 32) >> 4));
      if (right == 0 && k == 0)
        Wgmma<T, Cfg::kBlockN>::mma(acc[part].atoms[0], of_rows, of_weights, keep);
      else
        Wgmma<T, Cfg::kBlockN>::mma(acc[part].atoms[0], of_rows, of_weights);
    }
  }

  // A lane's pieces: 8 channels of pair at / 2 % kPairs, row at % 2, part at / 2 / kPairs.
  static constexpr int kPieces = 2 * kPairs * kParts;
  static ROCM_SD_DEVICE void take(Channels& v, const Sums (&acc)[kParts], int at) {
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i)
      v[i] = acc[at / 2 / kPairs].atoms[0][at / 2 % kPairs * 2 + i / 4].x[i / 2 % 2 * 4 + at % 2 * 2 + i % 2];
  }
  ROCM_SD_DEVICE void finish(const Sums (&acc)[kParts], int box) const {
    const EpilogueParams<T>& e = p_.conv.epilogue;
    const PixelBoxes::Pixel corner = p_.boxes.corner(box);
    const int first = first_channel_ + TmaPlace<Cfg>::channel();
    const bool relu = e.act == EpilogueActivation::kRelu;
    const bool plain = (e.act == EpilogueActivation::kNone || relu) && !e.scale && !e.shift &&
                       first_channel_ + Cfg::kBlockN <= e.channels;
    if (!plain) {  // one copy of all that there may be
      ROCM_SD_ROLLED
      for (int pass = 0; pass < kPieces; ++pass) {
        Channels v;
        ROCM_SD_UNROLL
        for (int at = 0; at < kPieces; ++at)
          if (at == pass) take(v, acc, at);
        const int pixel = pixel_of(corner, pass / 2 / kPairs, pass % 2),
                  channel = first + pass / 2 % kPairs * 32;
        if (pixel >= 0) finish_epilogue<Nvidia, true>(e, pixel, channel, v);
      }
      return;
    }
    Channels bias[kPairs] = {}, slopes[kPairs];
    for (int pair = 0; pair < kPairs; ++pair) {
      if (e.bias) load(bias[pair], e.bias + first + 32 * pair, all_channels());
      if (e.slopes)
        load(slopes[pair], e.slopes + first + 32 * pair, all_channels());
      else
        fill(slopes[pair], 1.0f);
    }
    ROCM_SD_UNROLL
    for (int part = 0; part < kParts; ++part) {
      int64_t rows[2];
      uint4 residual[2 * kPairs] = {};
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int pixel = pixel_of(corner, part, half);
        rows[half] = pixel < 0 ? -1 : pixel * e.y_stride + first;
      }
      ROCM_SD_UNROLL
      for (int at = 0; at < 2 * kPairs; ++at)
        if (e.residual && rows[at % 2] >= 0)
          residual[at] = *reinterpret_cast<const uint4*>(e.residual + rows[at % 2] + at / 2 * 32);
      ROCM_SD_UNROLL
      for (int at = 0; at < 2 * kPairs; ++at) {
        Channels v;
        take(v, acc, part * 2 * kPairs + at);
        const auto addend = __builtin_bit_cast(Vec8<T>, residual[at]);
        ROCM_SD_UNROLL
        for (int i = 0; i < 8; ++i) {
          const float sum = v[i] + bias[at / 2][i] + to_float(addend.x[i]);
          v[i] = sum < 0.0f ? (relu ? 0.0f : sum * slopes[at / 2][i]) : sum;
        }
        if (rows[at % 2] >= 0) store(e.y + rows[at % 2] + at / 2 * 32, v, all_channels());
      }
    }
  }
  // The pixel of y that this lane's row `half` of a part is, or -1.
  ROCM_SD_DEVICE int pixel_of(const PixelBoxes::Pixel& corner, int part, int half) const {
    const PixelBoxes& of = p_.boxes;
    const int place = TmaPlace<Cfg>::thread() / 32 * 2 + half;
    const int column = corner.column + Nvidia::lane() / 4,
              row = corner.row + place + (Halo::kPaired ? 0 : 8 * part),
              image = corner.image + (Halo::kPaired ? part : 0);
    if (column >= of.columns || row >= of.rows || image >= of.images) return -1;
    if (p_.conv.phases == 1) return (image * of.rows + row) * of.columns + column;
    return (2 * (image * of.rows + row) + phase_ / 2) * 2 * of.columns + 2 * column + phase_ % 2;
  }

  ROCM_SD_DEVICE int filter_bytes() const { return blocks_ * kTaps * kTileBytes; }

  const TmaConvParams<T>& p_;
  const int channels_, blocks_, boxes_;  // blocks of 64
  char* const filter_;                   // aligned to 1024
  ResidentPixels<Cfg, Halo::kStageBytes> pixels_;
  int phase_, first_channel_, first_box_, stride_;
};

template <class Cfg, class Halo>
ROCM_SD_DEVICE void conv_resident_halo(const TmaConvParams<typename Cfg::T>& p, int group, int workgroups,
                                       char* lds) {
  const int thread = Nvidia::thread();
  ResidentConv<Cfg, Halo> body(p, group, workgroups, lds);
  Nvidia::barrier();
  if (Nvidia::uniform(thread / 128) == Cfg::kConsumers / 128) {
    Tma::give_registers<Cfg::kFetchRegisters>();
    if (thread != Cfg::kConsumers) return;
    Nvidia::pdl_wait();
    Nvidia::pdl_launch_next();
    body.fetch();
  } else {
    Tma::take_registers<Cfg::kMultiplyRegisters>();
    if (p.pdl_wait_weights) Nvidia::pdl_wait();
    body.keep_filter();
    Nvidia::pdl_wait();
    body.multiply();
  }
}

// workgroups: workgroups in the grid. lds: Cfg::kLdsBytes.
template <class Cfg>
ROCM_SD_DEVICE void conv_resident_body(const TmaConvParams<typename Cfg::T>& p, int group, int workgroups,
                                       char* lds) {
  if (Nvidia::thread() == Cfg::kConsumers) Tma::prefetch(p.x);
  const bool paired = p.boxes.box_images() > 1;
  if (p.conv.image.filter_w == 3 && !paired)
    conv_resident_halo<Cfg, ResidentHalo<3, false>>(p, group, workgroups, lds);
  else if (p.conv.image.filter_w == 3)
    conv_resident_halo<Cfg, ResidentHalo<3, true>>(p, group, workgroups, lds);
  else if (!paired)
    conv_resident_halo<Cfg, ResidentHalo<2, false>>(p, group, workgroups, lds);
  else
    conv_resident_halo<Cfg, ResidentHalo<2, true>>(p, group, workgroups, lds);
}

}  // namespace rocm_sd
