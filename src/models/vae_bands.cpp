// Every map is let go band by band while the next one is made, so that about one map of the finest level is
// alive at a time, where the whole decoder holds three.
#include "models/vae_bands.hpp"

#include <algorithm>

#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/norm/group_bands.hpp"
#include "models/vae.hpp"

namespace rocm_sd {
namespace {

// Rows of a map around a band: what a 3x3 convolution reads.
struct Halo {
  int64_t above = 0, below = 0;  // rows of the neighbours, none at the border
};
Halo halo_of(const BandedMap& map, size_t i) { return {i > 0, i + 1 < map.count()}; }

// A band with its halo: copy(from, to) is called for each piece of rows.
template <class Copy>
Tensor with_halo(Exec& ex, const BandedMap& map, size_t i, const Halo& halo, const Copy& copy) {
  const auto [above, below] = halo;
  const Tensor& band = map.bands[i];
  Shape shape = band.shape();
  const int64_t rows = shape[1];
  shape[1] += above + below;
  const Tensor out = ex.alloc(shape, band.dtype());
  if (above) {
    const Tensor& neighbour = map.bands[i - 1];
    copy(neighbour.narrow(1, neighbour.dim(1) - 1, 1), out.narrow(1, 0, 1));
  }
  copy(band, out.narrow(1, above, rows));
  if (below) copy(map.bands[i + 1].narrow(1, 0, 1), out.narrow(1, above + rows, 1));
  return out;
}

// The padding of a 3x3 convolution of a band with its halo: zeros at the picture's border only.
Padding border_padding(const Halo& halo) {
  return {.top = halo.above ? 0 : 1, .left = 1, .bottom = halo.below ? 0 : 1, .right = 1};
}

// Group statistics over all bands of a map that is being made.
class Statistics {
 public:
  Statistics(Exec& ex, const BandedMap& map, int64_t width, int64_t groups)
      : ex_(ex), groups_(static_cast<int>(groups)) {
    int64_t rows = 0;
    for (size_t i = 0; i < map.count(); ++i) {
      rows_.push_back(rows);
      rows += moment_rows((map.begins[i + 1] - map.begins[i]) * width);
    }
    rows_.push_back(rows);
    moments_ = ex.alloc({rows, groups, 3}, DType::kF32);
  }
  void add(size_t i, const Tensor& band) {
    group_moments(ex_, band, groups_, moments_.narrow(0, rows_[i], rows_[i + 1] - rows_[i]));
  }
  Tensor scale(const Norm& norm) const { return group_scale(ex_, moments_, norm, norm.eps); }  // [2,C]

 private:
  Exec& ex_;
  int groups_;
  Tensor moments_;             // [runs,groups,3]
  std::vector<int64_t> rows_;  // of moments_, where each band's begin
};

// The scale that normalises the whole map.
Tensor scale_of(Exec& ex, const BandedMap& map, const Norm& norm, int64_t groups) {
  Statistics statistics(ex, map, map.bands.front().dim(2), groups);
  for (size_t i = 0; i < map.count(); ++i) statistics.add(i, map.bands[i]);
  return statistics.scale(norm);
}

// Band i of map, normalised and through SiLU, convolved 3x3.
Tensor norm_conv(Exec& ex, const BandedMap& map, size_t i, const Norm& norm, const Tensor& scale,
                 const Conv& conv, const Tensor* residual = nullptr) {
  const Tensor normed = with_halo(ex, map, i, halo_of(map, i), [&](const Tensor& from, const Tensor& to) {
    normalise_channels(ex, from, scale, norm, Activation::kSilu, to);
  });
  return conv2d(ex, normed, conv,
                {.pad = border_padding(halo_of(map, i)), .epilogue = {.residual = residual}});
}

// A band is no longer read once the one below it is done.
void release_above(BandedMap& map, size_t i) {
  if (i > 0) map.bands[i - 1] = Tensor();
}

// Bands of the same rows, with twice as many or half as many where asked.
BandedMap like(const BandedMap& map, int64_t factor = 1, int64_t divisor = 1) {
  BandedMap out{{}, map.begins};
  for (int64_t& begin : out.begins) begin = begin * factor / divisor;
  out.bands.resize(map.count());
  return out;
}

Tensor copied_with_halo(Exec& ex, const BandedMap& map, size_t i) {
  return with_halo(ex, map, i, halo_of(map, i),
                   [&](const Tensor& from, const Tensor& to) { copy_into(ex, from, to); });
}

// ResBlock without time shifts.
BandedMap resnet(Exec& ex, const ResBlock& block, BandedMap x, int64_t groups) {
  const int64_t width = x.bands.front().dim(2);
  const Tensor scale1 = scale_of(ex, x, block.norm1, groups);
  BandedMap hidden = like(x), shortcut = like(x);
  Statistics statistics(ex, x, width, groups);
  for (size_t i = 0; i < x.count(); ++i) {
    hidden.bands[i] = norm_conv(ex, x, i, block.norm1, scale1, block.conv1);
    statistics.add(i, hidden.bands[i]);
    shortcut.bands[i] = block.skip ? conv2d(ex, x.bands[i], *block.skip) : x.bands[i];
    release_above(x, i);
  }
  x.bands.clear();
  const Tensor scale2 = statistics.scale(block.norm2);
  BandedMap out = like(hidden);
  for (size_t i = 0; i < hidden.count(); ++i) {
    out.bands[i] = norm_conv(ex, hidden, i, block.norm2, scale2, block.conv2, &shortcut.bands[i]);
    shortcut.bands[i] = Tensor();
    release_above(hidden, i);
  }
  return out;
}

// Doubled by nearest neighbour, then convolved 3x3.
BandedMap upsample(Exec& ex, const Conv& conv, BandedMap x) {
  BandedMap out = like(x, 2);
  for (size_t i = 0; i < x.count(); ++i) {
    const auto [above, below] = halo_of(x, i);
    const Tensor source = copied_with_halo(ex, x, i);
    // A neighbour's row is doubled too: the second of the two gives a row that belongs to the neighbour.
    const Tensor rows = conv2d(ex, source, conv, {.pad = border_padding({above, below}), .upsample2x = true});
    const int64_t count = out.begins[i + 1] - out.begins[i];
    if (above || below) {
      out.bands[i] = ex.alloc({1, count, rows.dim(2), rows.dim(3)}, rows.dtype());
      copy_into(ex, rows.narrow(1, above, count), out.bands[i]);
    } else {
      out.bands[i] = rows;
    }
    release_above(x, i);
  }
  return out;
}

// Convolved 3x3 with stride 2, padded below and to the right only. Bands have an even number of rows, so that
// the filter begins at a band's own rows and reads one row of the band below.
BandedMap downsample(Exec& ex, const Conv& conv, BandedMap x) {
  BandedMap out = like(x, 1, 2);
  for (size_t i = 0; i < x.count(); ++i) {
    const auto copy = [&](const Tensor& from, const Tensor& to) { copy_into(ex, from, to); };
    const int64_t below = halo_of(x, i).below;
    const Tensor source = with_halo(ex, x, i, {.below = below}, copy);
    out.bands[i] = conv2d(ex, source, conv, {.stride = 2, .pad = {.bottom = below ? 0 : 1, .right = 1}});
    x.bands[i] = Tensor();  // the band below does not read it
  }
  return out;
}

BandedMap conv3x3(Exec& ex, const Conv& conv, BandedMap x) {
  BandedMap out = like(x);
  for (size_t i = 0; i < x.count(); ++i) {
    out.bands[i] = conv2d(ex, copied_with_halo(ex, x, i), conv, {.pad = border_padding(halo_of(x, i))});
    release_above(x, i);
  }
  return out;
}

}  // namespace

BandedMap cut_into_bands(Exec& ex, const Tensor& x, int64_t count, int64_t multiple) {
  const int64_t height = x.dim(1), pieces = height / multiple;
  const int64_t bands = std::clamp<int64_t>(count, 1, pieces);
  BandedMap out;
  for (int64_t i = 0; i < bands; ++i) {
    const int64_t begin = pieces * i / bands * multiple, end = pieces * (i + 1) / bands * multiple;
    out.begins.push_back(begin);
    Tensor band = ex.alloc({1, end - begin, x.dim(2), x.dim(3)}, x.dtype());
    copy_into(ex, x.narrow(1, begin, end - begin), band);
    out.bands.push_back(std::move(band));
  }
  out.begins.push_back(height);
  return out;
}

Tensor joined(Exec& ex, const BandedMap& map) {
  const Tensor& first = map.bands.front();
  const Tensor out = ex.alloc({1, map.height(), first.dim(2), first.dim(3)}, first.dtype());
  for (size_t i = 0; i < map.count(); ++i)
    copy_into(ex, map.bands[i], out.narrow(1, map.begins[i], map.begins[i + 1] - map.begins[i]));
  return out;
}

Tensor VaeEncoder::levels_in_bands(Exec& ex, const Tensor& picture, int64_t count) const {
  require(picture.dim(0) == 1, "vae encoder: bands take one picture at a time, got ", picture.shape());
  BandedMap x = conv3x3(ex, conv_in_, cut_into_bands(ex, picture, count, config_.downscale()));
  for (const VaeLevel& level : levels_) {
    for (const ResBlock& block : level.resnets) x = resnet(ex, block, std::move(x), config_.norm_groups);
    if (level.downsampler) x = downsample(ex, *level.downsampler, std::move(x));
  }
  return joined(ex, x);
}

void VaeDecoder::decode_in_bands(Exec& ex, const Tensor& latents, int64_t count, const BandSink& sink) const {
  require(latents.dim(0) == 1, "vae decoder: bands take one picture at a time, got ", latents.shape());
  BandedMap x = cut_into_bands(ex, middle(ex, first_map(ex, latents, nullptr), nullptr), count);
  for (const VaeLevel& level : levels_) {
    for (const ResBlock& block : level.resnets) x = resnet(ex, block, std::move(x), config_.norm_groups);
    if (!level.upsampler) continue;
    const bool doubling = doubles(static_cast<size_t>(&level - levels_.data()));
    x = doubling ? upsample(ex, *level.upsampler, std::move(x)) : conv3x3(ex, *level.upsampler, std::move(x));
  }
  const Tensor scale = scale_of(ex, x, norm_out_, config_.norm_groups);
  BandedMap picture = like(x);
  for (size_t i = 0; i < x.count(); ++i) {
    Tensor band = norm_conv(ex, x, i, norm_out_, scale, conv_out_);
    release_above(x, i);
    if (config_.half_size_finest)
      picture.bands[i] = std::move(band);  // small: three channels
    else
      sink(band, x.begins[i]);
  }
  if (config_.half_size_finest) sink(full_size(ex, joined(ex, picture)), 0);
}

}  // namespace rocm_sd
