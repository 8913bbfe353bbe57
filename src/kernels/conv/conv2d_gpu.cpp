// conv2d on a GPU: the problem as the kernel takes it, workspace, and launches.
#include "kernels/conv/conv2d_gpu.hpp"

#include <algorithm>
#include <limits>

#include "composable_kernels/fused/conv_layout.hpp"
#include "composable_kernels/fused/conv_params.hpp"
#include "kernels/choice_memo.hpp"
#include "kernels/conv/conv2d_parts.hpp"
#include "kernels/conv/conv2d_winograd_gpu.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "kernels/factor_columns.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/tma_plan.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
constexpr int64_t kMaxNear =
    (int64_t{1} << 28) - 1;  // pieces of 16 bytes in an input that AMD's gather counts

template <class T>
ConvImage image_of(const ConvProblem& p, const Tensor& x, const Tensor& second) {
  const auto small = [](int64_t extent) { return static_cast<int32_t>(extent); };
  const Padding& pad = p.args.pad;
  ConvGeometry g{.batch = small(p.batch()),
                 .height = small(p.height()),
                 .width = small(p.width()),
                 .channels = small(x.dim(3)),
                 .second_channels = second ? small(second.dim(3)) : 0,
                 .pitch = small(x.stride(2)),
                 .second_pitch = second ? small(second.stride(2)) : 0,
                 .outputs = small(p.out_channels()),
                 .filter_h = small(p.filter_h()),
                 .filter_w = small(p.filter_w()),
                 .stride = p.args.stride,
                 .pad_top = pad.top,
                 .pad_left = pad.left,
                 .pad_bottom = pad.bottom,
                 .pad_right = pad.right,
                 .doubled = p.args.upsample2x};
  if (conv_has_phases(p)) {  // each phase makes as many pixels as the image has
    g.doubled = false;
    g.filter_h = g.filter_w = 2;
    g.pad_bottom = g.pad_right = 0;
  }
  return conv_image(g, static_cast<const T*>(x.data()),
                    second ? static_cast<const T*>(second.data()) : static_cast<const T*>(nullptr));
}

// The packed filter with its change, in the arena's memory.
Tensor changed_filter(Exec& ex, const ConvProblem& p, const Tensor& packed) {
  GpuDevice& device = *gpu_device(ex);
  const Weight& down = *p.args.change->down;
  const auto make = [&](const Tensor& plain) {
    return std::make_shared<FactorColumns>(device, plain,
                                           conv_packed_layout(plain.shape(), p.channels(), p.dtype()));
  };
  const auto pack = down.packed(concat("gpu columns ", p.channels(), "+", p.second_channels()), make);
  const Weight& columns = static_cast<const FactorColumns&>(*pack).columns();  // [depth,r]
  return linear(ex, *p.args.change->up, LinearWeight{columns, std::nullopt},
                {.residual = &packed, .reads_constants = true});
}

// The filter as the kernel reads it, laid out on first use; one that is stored in 8 bits is dequantized for
// every run, one that changes is made anew for every run, into the memory of `wide`.
template <class T>
const T* filter_of(Exec& ex, const ConvProblem& p, Tensor& wide) {
  GpuDevice& device = *gpu_device(ex);
  const Weight& weight = p.w.weight;
  const Tensor scales = weight.scales();
  const auto make = [&](const Tensor& plain) {
    return std::make_shared<GpuFilter>(device, plain, p.channels(), p.dtype());
  };
  const std::string key = concat("gpu ", p.channels(), "+", p.second_channels());
  if (scales) {
    const auto pack = weight.packed_as_stored(key, make);
    const auto& filter = static_cast<const GpuFilter&>(*pack);
    wide = conv_has_phases(p) ? dequantize_phases(ex, filter, scales, p.dtype())
                              : dequantize(ex, filter.packed(), scales, p.dtype());
    return static_cast<const T*>(wide.data());
  }
  if (conv_has_phases(p)) {
    const auto make_phases = [&](const Tensor& plain) {
      return std::make_shared<GpuPhaseFilter>(device, plain);
    };
    const auto pack = weight.packed("gpu phases", make_phases, true);
    return static_cast<const T*>(static_cast<const GpuPhaseFilter&>(*pack).data());
  }
  const auto pack = weight.packed(key, make);
  const Tensor& packed = static_cast<const GpuFilter&>(*pack).packed();
  if (p.args.change) wide = changed_filter(ex, p, packed);
  return static_cast<const T*>((wide ? wide : packed).data());
}

// Tiles by TMA. Clusters that run at once take all tiles in turn; with splits each takes one.
template <class T>
void launch_tma(Exec& ex, const OpInfo& info, const ConvProblem& p, const ConvChoice& choice,
                const ConvParams<T>& params) {
  GpuDevice& device = *gpu_device(ex);
  const TileShape& shape = choice.config.shape;
  const ConvImage& image = params.image;
  const bool made_in_run = p.w.weight.scales() || p.args.change;
  const bool resident = choice.config.algorithm == GemmAlgorithm::kTmaResident;
  const std::optional<PixelBoxes> in_boxes =
      uses_halo(choice.config.algorithm) ? conv_halo_boxes(p) : conv_boxes(p);
  TmaConvParams<T> tma{{},
                       {},
                       {},
                       params,
                       choice.multicast_size,
                       choice.splits,
                       made_in_run,
                       in_boxes.has_value(),
                       in_boxes.value_or(PixelBoxes{})};
  if (params.epilogue.y) {  // not while planning
    // The window that a filter's first tap wanders over; of phases, all taps of the 3x3 filter.
    const bool phases = params.phases > 1;
    const int taps_h = phases ? 3 : image.filter_h, taps_w = phases ? 3 : image.filter_w;
    ImageBoxes boxes{.batch = static_cast<uint64_t>(p.batch()),
                     .height = static_cast<uint64_t>(image.height),
                     .width = static_cast<uint64_t>(image.width),
                     .box_pixels = static_cast<uint32_t>(shape.block_m),
                     .stride = static_cast<uint32_t>(image.stride),
                     .first = {-image.pad_top, -image.pad_left},
                     .last = {p.args.pad.bottom - (taps_h - 1), p.args.pad.right - (taps_w - 1)}};
    if (in_boxes) {
      const bool halo = uses_halo(choice.config.algorithm);
      boxes.box_columns = static_cast<uint32_t>(in_boxes->box_columns() + (halo ? image.filter_w - 1 : 0));
      boxes.box_rows = static_cast<uint32_t>(in_boxes->box_rows() + (halo ? image.filter_h - 1 : 0));
      boxes.box_images = static_cast<uint32_t>(in_boxes->box_images());
    }
    for (int i : {0, 1}) {
      if (image.pieces[i] == 0) continue;
      boxes.data = image.data[i];
      boxes.channels = static_cast<uint64_t>(image.pieces[i]) * 8;
      boxes.pitch = static_cast<uint64_t>(image.pitch[i]) * 8;
      device.map_boxes(i == 0 ? &tma.x : &tma.second, boxes);
    }
    const auto depth = static_cast<uint64_t>(params.depth);
    const auto filters =
        static_cast<uint64_t>(params.phases) * static_cast<uint64_t>(params.epilogue.channels);
    if (!resident)  // else lanes fetch it
      device.map_boxes(&tma.filter, MatrixBoxes{params.filter, filters, depth, depth * sizeof(T),
                                                static_cast<uint32_t>(shape.block_n), true});
  }
  const auto ceil_div = [](int64_t a, int64_t b) { return static_cast<uint32_t>((a + b - 1) / b); };
  const int64_t rows = in_boxes ? in_boxes->boxes() * PixelBoxes::kPixels : image.pixels;
  const auto cluster = static_cast<uint32_t>(choice.multicast_size * choice.splits);
  const uint32_t tiles = ceil_div(rows, shape.block_m * choice.multicast_size) *
                         ceil_div(params.epilogue.channels, shape.block_n) *
                         static_cast<uint32_t>(params.phases);
  const uint32_t clusters =
      resident
          ? resident_workgroups(device.traits(), choice.config, tma_extent(conv_extent(p), choice.config))
      : choice.splits > 1 ? tiles
                          : std::min(tiles, tma_clusters_at_once(device.traits(), choice.config.occupancy,
                                                                 static_cast<int>(cluster)));
  launch_kernel(ex, info, conv_kernel(ex, conv_kernel_name(p.dtype(), choice.config)),
                {clusters * cluster, 1, 1, cluster, true},
                static_cast<uint32_t>(resident ? kResidentThreads : kTmaThreads),
                static_cast<uint32_t>(choice.config.lds_bytes(sizeof(T))), tma);
}

template <class T>
void run(Exec& ex, const ConvProblem& p, const ConvChoice& choice) {
  GpuDevice& device = *gpu_device(ex);
  const TileShape& shape = choice.config.shape;
  const Tensor x = conv_whole_pieces<T>(ex, p.x);
  const Tensor second = p.args.second ? conv_whole_pieces<T>(ex, *p.args.second) : Tensor();
  const bool phases = conv_has_phases(p);

  ConvParams<T> params{};
  params.image = image_of<T>(p, x, second);
  params.epilogue = conv_epilogue<T>(p);
  Tensor wide;  // lives until the launch
  params.filter = filter_of<T>(ex, p, wide);
  params.phases = phases ? 4 : 1;
  params.depth = static_cast<int32_t>(conv_extent(p).depth);
  const int steps = (params.depth + shape.block_k - 1) / shape.block_k;
  params.split_steps = (steps + choice.splits - 1) / choice.splits;
  // Every part has a step: fewer parts may be enough than were asked for.
  const int splits = (steps + params.split_steps - 1) / params.split_steps;
  if (uses_tma(choice.config.algorithm)) {
    const ConvChoice fewer{choice.config, splits, choice.multicast_size};
    const OpInfo info = p.info(concat(phases ? "gpu phases " : "gpu ", describe(fewer)).c_str());
    return launch_tma(ex, info, p, fewer, params);
  }
  const bool sums_parts = kernel_tables(device.traits()).sums_parts();
  Tensor partials;
  if (splits > 1 && !sums_parts) {
    partials = ex.alloc({splits, params.epilogue.rows, params.epilogue.channels}, DType::kF32);
    params.partials = partials.as<float>();
  }
  const int tiles_m = (params.image.pixels + shape.block_m - 1) / shape.block_m;
  const int tiles_n = (params.epilogue.channels + shape.block_n - 1) / shape.block_n;
  const std::string name = conv_kernel_name(p.dtype(), choice.config);
  const int64_t tiles = int64_t{tiles_m} * tiles_n;
  const SharedTiles shared(ex, shape, tiles, sums_parts ? splits : 1, choice.split_tiles, params.phases);
  params.parts = shared.parts;
  const GpuGrid grid{shared.workgroups(tiles), static_cast<uint32_t>(sums_parts ? 1 : splits),
                     static_cast<uint32_t>(params.phases)};
  params.order = shared.order(device.traits(), grid);
  launch_kernel(ex,
                p.info(concat(phases ? "gpu phases " : "gpu ",
                              describe(ConvChoice{choice.config, splits, 1, choice.split_tiles}))
                           .c_str()),
                conv_kernel(ex, name), grid, static_cast<uint32_t>(shape.waves() * device.traits().lanes),
                kernel_tables(device.traits()).dynamic_lds(choice.config.lds_bytes(sizeof(T))), params);
  if (splits == 1 || sums_parts) return;
  const GemmReduceParams<T> reduce{params.partials, params.epilogue, splits, false};
  const int64_t pieces = static_cast<int64_t>(params.epilogue.rows) * ((params.epilogue.channels + 7) / 8);
  launch_kernel(ex, {"conv2d", concat("gpu reduce ", p.describe()), 0, static_cast<double>(partials.bytes())},
                conv_kernel(ex, concat("conv_reduce_", dtype_name(p.dtype()))),
                {conv_groups_of(pieces), 1, 1}, kConvSmallThreads, 0, reduce);
}

using ConvKey =
    std::tuple<GpuKey, int64_t, int64_t, int64_t, DType, int64_t, bool, bool, int64_t, int64_t, int64_t>;
ConvKey key_of(const GpuTraits& traits, const ConvExtent& e) {
  return {gpu_key(traits), e.pixels,      e.outputs,          e.depth,
          e.dtype,         e.phases,      e.whole_steps,      e.whole_blocks,
          e.boxed_pixels,  e.halo_pixels, e.resident_channels};
}

ConvChoice default_choice(const Exec& ex, const ConvExtent& extent) {
  thread_local ChoiceMemo<ConvKey, ConvChoice> memo;
  const GpuTraits& traits = gpu_device(ex)->traits();
  return memo.of(key_of(traits, extent), [&] { return conv_default(traits, extent); });
}

std::optional<ConvChoice> choice_named(const Exec& ex, const ConvProblem& p, const std::string& name) {
  thread_local ChoiceMemo<std::pair<ConvKey, std::string>, std::optional<ConvChoice>> memo;
  const GpuTraits& traits = gpu_device(ex)->traits();
  const ConvExtent extent = conv_extent(p);
  return memo.of({key_of(traits, extent), name},
                 [&] { return choice_of(conv_candidates(traits, extent), name); });
}

std::vector<std::string> config_names(const Exec& ex, const ConvProblem& p) {
  if (ExplanationRecord* record = ExplanationRecord::current())
    record->add(conv_explanation(gpu_device(ex)->traits(), conv_extent(p)));
  std::vector<std::string> names;
  for (const ConvChoice& choice : conv_candidates(gpu_device(ex)->traits(), conv_extent(p)))
    names.push_back(describe(choice));
  if (!conv2d_refuses_winograd(ex, p))
    names.insert(conv2d_prefers_winograd(ex, p) ? names.begin() : names.end(), kWinogradConfig);
  return names;
}

Refusal supports_config(const Exec& ex, const ConvProblem& p, const std::string& config) {
  if (config == kWinogradConfig) return conv2d_refuses_winograd(ex, p);
  const auto choice = choice_named(ex, p, config);
  if (!choice) return "is no configuration for it";
  if (const Refusal refusal = supports_kernel(ex, conv_kernel_name(p.dtype(), choice->config)))
    return refusal;
  if (choice->splits > 1 && !kernel_tables(gpu_device(ex)->traits()).sums_parts())
    return supports_kernel(ex, concat("conv_reduce_", dtype_name(p.dtype())));
  return std::nullopt;
}

void run_config(Exec& ex, const ConvProblem& p, const std::string& config) {
  if (config == kWinogradConfig) return conv2d_winograd_gpu(ex, p);
  conv2d_gpu_by(ex, p, choice_named(ex, p, config).value());
}

}  // namespace

const Configs<ConvProblem> kConvGpuConfigs = {config_names, supports_config, run_config};

std::string conv_kernel_name(DType dtype, const GemmConfig& config) {
  return kernel_name(config, "conv_", std::string(dtype_name(dtype)).c_str()).c_str();
}

std::string describe(const ConvChoice& choice) {
  const std::string multicast =
      uses_tma(choice.config.algorithm) ? concat(choice.multicast_size) : std::string();
  const char* const tiles = choice.split_tiles == SharedTileSet::kLastRound ? "r" : "";
  return concat(describe(choice.config), multicast, "/", choice.splits, tiles);
}

bool conv_has_phases(const ConvProblem& p) {
  const Padding& pad = p.args.pad;
  return p.args.upsample2x && !p.args.second && p.filter_h() == 3 && p.filter_w() == 3 &&
         p.args.stride == 1 && pad.top == 1 && pad.left == 1 && pad.bottom == 1 && pad.right == 1;
}

ConvExtent conv_extent(const ConvProblem& p) {
  const int64_t padded =
      conv_padded_channels(p.channels(), p.dtype()) + conv_padded_channels(p.second_channels(), p.dtype());
  const int64_t taps = conv_has_phases(p) ? 4 : p.filter_h() * p.filter_w();
  const Tensor* const shift = p.args.epilogue.channel_shift;
  const auto aligned = [](const Tensor& t) {
    return t.offset_bytes() % 16 == 0 && t.stride(0) * static_cast<int64_t>(dtype_size(t.dtype())) % 16 == 0;
  };
  const bool whole_steps = dtype_size(p.dtype()) == 2 && p.channels() % 32 == 0 &&
                           p.second_channels() % 32 == 0 && (!p.args.upsample2x || conv_has_phases(p));
  const bool whole_outputs = whole_steps && p.out_dtype() == p.dtype() && p.out_channels() % 32 == 0 &&
                             p.args.stride <= 8 && (!shift || aligned(*shift));
  const bool whole_blocks = whole_outputs && p.channels() % 64 == 0 && p.second_channels() % 64 == 0;
  const std::optional<PixelBoxes> boxes = whole_blocks ? conv_boxes(p) : std::nullopt;
  const bool few_outputs = whole_steps && p.out_dtype() == p.dtype() && p.out_channels() < 32;
  const std::optional<PixelBoxes> halos = whole_outputs || few_outputs ? conv_halo_boxes(p) : std::nullopt;
  return {p.batch() * p.out_h() * p.out_w(),
          p.out_channels(),
          taps * padded,
          p.dtype(),
          conv_has_phases(p) ? 4 : 1,
          whole_steps,
          whole_blocks,
          boxes ? boxes->boxes() * PixelBoxes::kPixels : 0,
          halos ? halos->boxes() * PixelBoxes::kPixels : 0,
          halos && !p.args.second && p.filter_h() == p.filter_w() ? p.channels() : 0};
}

namespace {

// Boxes that make() makes of the outputs of a phase, unless many would not be full.
template <class Make>
std::optional<PixelBoxes> full_boxes(const ConvProblem& p, const Make& make) {
  const int64_t scale = conv_has_phases(p) ? 2 : 1, images = p.batch(), rows = p.out_h() / scale,
                columns = p.out_w() / scale, pixels = images * rows * columns;
  if (pixels == 0 || pixels > kMax) return std::nullopt;
  const PixelBoxes boxes =
      make(static_cast<int32_t>(images), static_cast<int32_t>(rows), static_cast<int32_t>(columns));
  // A gathered step takes a seventh longer or more; so may boxes that are not full.
  const int64_t full = (pixels + PixelBoxes::kPixels - 1) / PixelBoxes::kPixels;
  if (boxes.boxes() * 8 > full * 9) return std::nullopt;
  return boxes;
}

}  // namespace

std::optional<PixelBoxes> conv_boxes(const ConvProblem& p) {
  return p.args.stride <= 2 ? full_boxes(p, pixel_boxes) : std::nullopt;
}

std::optional<PixelBoxes> conv_halo_boxes(const ConvProblem& p) {
  const bool small = p.filter_h() <= 3 && p.filter_w() <= 3 && p.filter_h() * p.filter_w() > 1;
  return p.args.stride == 1 && small ? full_boxes(p, halo_boxes) : std::nullopt;
}

Refusal conv2d_supports_gpu(const Exec& ex, const ConvProblem& p) {
  const GpuDevice* const device = gpu_device(ex);
  if (!device) return "runs on a GPU only";
  if (p.filter_h() > ConvImage::kMaxFilter || p.filter_w() > ConvImage::kMaxFilter)
    return concat("filters of more than ", ConvImage::kMaxFilter, " taps in a direction");
  const ConvExtent extent = conv_extent(p);
  const auto piece = static_cast<int64_t>(16 / dtype_size(p.dtype()));
  const int64_t pitch = std::max(p.x.stride(2), p.args.second ? p.args.second->stride(2) : 0);
  const int64_t padded = conv_padded_channels(pitch, p.dtype());
  const int64_t most = kernel_tables(device->traits()).pixel_limit == PixelLimit::kCount ? kMax : kMaxNear;
  if (extent.pixels > kMax || extent.outputs > kMax || extent.depth > kMax ||
      p.batch() * p.height() * p.width() > most / (padded / piece))
    return "more pixels than it counts";
  return supports_kernel(ex, conv_kernel_name(p.dtype(), default_choice(ex, extent).config));
}

void conv2d_gpu(Exec& ex, const ConvProblem& p) {
  if (!conv2d_refuses_winograd(ex, p) && conv2d_prefers_winograd(ex, p)) return conv2d_winograd_gpu(ex, p);
  conv2d_gpu_by(ex, p, default_choice(ex, conv_extent(p)));
}

void conv2d_gpu_by(Exec& ex, const ConvProblem& p, const ConvChoice& choice) {
  switch (p.dtype()) {
    case DType::kF32: return run<float>(ex, p, choice);
    case DType::kBF16: return run<Bf16>(ex, p, choice);
    default: return run<Half>(ex, p, choice);
  }
}

}  // namespace rocm_sd
