#include "kernels/conv/conv2d_winograd_gpu.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "composable_kernels/fused/winograd.hpp"
#include "kernels/choice_memo.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/conv/conv2d_parts.hpp"
#include "kernels/family/cost_model.hpp"
#include "kernels/family/kernel_tables.hpp"

namespace rocm_sd {
namespace {

constexpr const char* kKernel = "conv_winograd_f16";
constexpr const char* kFilterKernel = "conv_winograd_filter_f16";

// How much faster the estimate must be: estimates err, and the rounding is the implicit product's threefold.
constexpr double kMargin = 1.2;
// Transformed filters lie in memory beside plain ones: a UNet's take 1 to 4 GB. Cards of 16 GB and more.
constexpr uint64_t kLeastMemory = uint64_t{15} << 30;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

WinogradShape shape_on(const GpuTraits& traits) { return winograd_shape(kernel_tables(traits).name); }

struct Tiles {
  int64_t rows, columns, all;
};
Tiles tiles_of(const ConvProblem& p) {
  const int64_t rows = ceil_div(p.out_h(), 2), columns = ceil_div(p.out_w(), 2);
  return {rows, columns, p.batch() * rows * columns};
}

// The estimate of the implicit product's default.
double implicit_ns(const GpuTraits& traits, const ConvProblem& p) {
  using Key = std::tuple<GpuKey, int64_t, int64_t, int64_t>;
  thread_local ChoiceMemo<Key, double> memo;
  const ConvExtent e = conv_extent(p);
  return memo.of({gpu_key(traits), e.pixels, e.outputs, e.depth},
                 [&] { return reason_of(traits, e, conv_default(traits, e)).ns; });
}

int lds_bytes(const WinogradShape& shape) {
  const int operands = kWinogradPlanes * shape.tiles * kWinogradDepth * 2;
  const int staged = kWinogradPlanes * 16 * 32 * 4;
  return operands > staged ? operands : staged;
}

}  // namespace

GpuWinogradFilter::GpuWinogradFilter(GpuDevice& device, const Tensor& plain) {
  const int64_t outputs = plain.dim(0), channels = plain.dim(1);
  const int64_t workgroup = shape_on(device.traits()).channels;
  const int64_t blocks = ceil_div(outputs, workgroup) * workgroup / 16;
  const int64_t eighths = ceil_div(channels, kWinogradDepth) * kWinogradDepth / 8;
  data_ = make_tensor(device, {kWinogradPlanes, blocks, eighths, 16, 8}, plain.dtype());
  const GpuKernel* kernel = device.find_kernel(kFilterKernel);
  require<UsageError>(kernel != nullptr, "conv2d: the kernel archive for ", device.traits().arch, " has no ",
                      kFilterKernel);
  const auto small = [](int64_t extent) { return static_cast<int32_t>(extent); };
  WinogradFilterParams params{static_cast<const Half*>(plain.data()),
                              static_cast<Half*>(data_.data()),
                              small(outputs),
                              small(channels),
                              small(blocks),
                              small(eighths)};
  clear_padding(params);
  device.launch(*kernel, {conv_groups_of(blocks * 16 * eighths), 1, 1}, kConvSmallThreads, 0, &params,
                sizeof(params));
  device.synchronize();  // the plain filter may be freed after this
}

Tensor GpuWinogradFilter::unpack() const {
  throw InternalError("the transform of a filter does not give it back");
}

Refusal conv2d_refuses_winograd(const Exec& ex, const ConvProblem& p) {
  const GpuDevice* const device = gpu_device(ex);
  if (!device) return "runs on a GPU only";
  if (p.dtype() != DType::kF16 || p.out_dtype() != DType::kF16) return "f16 in and out only";
  if (p.w.weight.stored_as() != DType::kF16 || p.args.change)
    return "filters that are stored in f16 and stay as they are";
  if (p.filter_h() != 3 || p.filter_w() != 3 || p.args.stride != 1) return "3x3 filters of stride 1 only";
  if (p.args.second || p.args.upsample2x) return "one input, as large as it is stored";
  const int64_t row = p.width() * conv_padded_channels(p.x.stride(2), p.dtype());
  const int64_t elements = (p.batch() * p.height() + p.args.pad.top + 4) * row;
  const int64_t tiles = tiles_of(p).all;
  if (elements > int64_t{1} << 29 || tiles * 4 > std::numeric_limits<int32_t>::max() / 2 ||
      p.out_channels() > 1 << 20 || p.args.pad.left > p.width())
    return "more pixels than it counts";
  if (const Refusal refusal = supports_kernel(ex, kFilterKernel)) return refusal;
  return supports_kernel(ex, kKernel);
}

bool conv2d_prefers_winograd(const Exec& ex, const ConvProblem& p) {
  GpuDevice& device = *gpu_device(ex);
  const KernelTables& family = kernel_tables(device.traits());
  const CostModel& model = cost_model(family.name);
  const std::optional<ConvWinogradCosts>& costs = model.conv_winograd;
  if (!costs) return false;
  const WinogradShape shape = winograd_shape(family.name);
  const int64_t units = std::max(1, device.traits().compute_units), outputs = p.out_channels();
  const int64_t groups = ceil_div(tiles_of(p).all, shape.tiles) * ceil_div(outputs, shape.channels);
  if (groups < units) return false;  // splits of the implicit product fill the card
  const auto steps = static_cast<double>(ceil_div(p.channels(), kWinogradDepth));
  const bool has_room = device.memory().total >= kLeastMemory;
  const ModelledCosts* modelled = model.modelled_for(device.traits().arch);
  if (const KernelTime* time = modelled ? find_kernel_time(*modelled, kKernel) : nullptr) {
    const double ns = launch_ns(*time, groups, units, steps) + modelled->launch_ns;
    return has_room && kMargin * ns < implicit_ns(device.traits(), p) + modelled->launch_ns;
  }
  const double winograd =
      static_cast<double>(ceil_div(groups, units)) * (steps * costs->step_cycles + costs->workgroup_cycles);
  // As if its tiles fitted the problem and the card.
  const auto products = static_cast<double>(p.batch() * p.out_h() * p.out_w() * outputs * 9 * p.channels());
  const double implicit = products / static_cast<double>(units) / costs->implicit_mma_per_cycle;
  return has_room && winograd * kMargin < implicit;
}

void conv2d_winograd_gpu(Exec& ex, const ConvProblem& p) {
  GpuDevice& device = *gpu_device(ex);
  const auto make = [&](const Tensor& plain) { return std::make_shared<GpuWinogradFilter>(device, plain); };
  const auto pack = p.w.weight.packed("gpu winograd", make, true);
  const Tensor& filter = static_cast<const GpuWinogradFilter&>(*pack).packed();
  const Tensor x = conv_whole_pieces<Half>(ex, p.x);
  const WinogradShape shape = shape_on(device.traits());
  const Tiles tiles = tiles_of(p);
  const auto small = [](int64_t extent) { return static_cast<int32_t>(extent); };

  WinogradParams params{};
  WinogradImage& image = params.image;
  image.x = static_cast<const Half*>(x.data());
  image.height = small(p.height());
  image.width = small(p.width());
  image.channels = small(x.dim(3));
  image.pad_top = p.args.pad.top;
  image.pad_left = p.args.pad.left;
  image.pitch = small(x.stride(2));
  image.out_height = small(p.out_h());
  image.out_width = small(p.out_w());
  image.tiles = small(tiles.all);
  image.by_image = fast_divide(small(tiles.rows * tiles.columns));
  image.by_row = fast_divide(small(tiles.columns));
  params.filter = {static_cast<const Half*>(filter.data()), small(filter.dim(1)), small(filter.dim(2))};
  params.epilogue = conv_epilogue<Half>(p);
  params.steps = small(filter.dim(2) * 8 / kWinogradDepth);
  const int64_t groups = ceil_div(tiles.all, shape.tiles) * (filter.dim(1) * 16 / shape.channels);
  const GpuGrid grid{static_cast<uint32_t>(groups), 1, 1};
  params.order = group_order(device.traits(), grid);
  launch_kernel(ex, p.info(concat("gpu ", kWinogradConfig).c_str()), conv_kernel(ex, kKernel), grid,
                static_cast<uint32_t>(shape.waves * device.traits().lanes),
                kernel_tables(device.traits()).dynamic_lds(lds_bytes(shape)), params);
}

}  // namespace rocm_sd
