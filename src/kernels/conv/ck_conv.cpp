#include "kernels/conv/ck_conv.hpp"

#include <algorithm>

#include "kernels/conv/ck_conv_params.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {
namespace {

// Reads and writes go by buffer descriptors, whose range and offsets are of 32 bits with a sign.
constexpr int64_t kMaxBytes = (int64_t{1} << 31) - 1;

const CkGemmTile& tile_of(const GpuTraits& traits) { return traits.lanes == 64 ? kCkConvXdl : kCkConvWmma; }

std::string kernel_name(const ConvProblem& p) {
  return concat("ck_conv_", p.dtype(), "_bias", p.args.epilogue.residual ? "_residual" : "");
}

std::optional<int> act_of(Activation act) {
  switch (act) {
    case Activation::kNone: return 0;
    case Activation::kSilu: return 1;
    case Activation::kRelu: return 2;
    default: return std::nullopt;
  }
}

Refusal supports_form(const ConvProblem& p) {
  if (dtype_size(p.dtype()) != 2 || p.out_dtype() != p.dtype()) return "has instances for 16-bit types only";
  if (p.w.weight.scales()) return "weights stored in 8 bits";
  if (p.args.second || p.args.upsample2x) return "takes one input, as large as it is stored";
  if (!p.w.bias) return "has no instance without a bias";
  if (p.args.epilogue.channel_shift) return "has no instance with a shift for each image";
  if (p.args.epilogue.channel_scale) return "a scale of channels";
  if (p.args.epilogue.slopes) return "slopes";
  if (p.args.change) return "a change of the filter";
  if (p.has_parts()) return "parts of maps";
  if (!act_of(p.args.epilogue.act)) return "has no instance with this activation";
  if (p.channels() % 8 != 0 || p.out_channels() % 8 != 0) return "pixels that are not of 16-byte pieces";
  return std::nullopt;
}

int64_t depth_of(const ConvProblem& p) { return p.filter_h() * p.filter_w() * p.channels(); }

Refusal supports(const Exec& ex, const ConvProblem& p) {
  const GpuDevice* device = gpu_device(ex);
  if (!device || device->traits().family == GpuFamily::kNvidia) return "runs on AMD GPUs only";
  if (const Refusal refusal = supports_form(p)) return refusal;
  if (const int least = tile_of(device->traits()).least_depth(); depth_of(p) < least)
    return concat("windows of fewer than ", least, " values");
  const int64_t largest = std::max({p.x.numel(), p.y.numel(), depth_of(p) * p.out_channels()});
  if (largest * 2 > kMaxBytes) return "an operand of 2 GiB or more";
  if (const Refusal refusal = supports_kernel(ex, concat("conv_pack_", p.dtype())))
    return refusal;  // lays the filter out
  return supports_kernel(ex, kernel_name(p));
}

const void* filter_of(GpuDevice& device, const ConvProblem& p) {
  const auto make = [&](const Tensor& plain) {
    return std::make_shared<GpuFilter>(device, plain, plain.dim(1), plain.dtype(), GpuFilter::Order::kDense);
  };
  return static_cast<const GpuFilter&>(*p.w.weight.packed("gpu dense", make)).packed().data();
}

CkConvParams params_of(Exec& ex, const ConvProblem& p) {
  const auto small = [](int64_t value) { return static_cast<int>(value); };
  CkConvParams out;
  out.gemm.x = p.x.data();
  out.gemm.w = filter_of(*gpu_device(ex), p);
  out.gemm.bias = p.w.bias->as<float>();
  out.gemm.residual = p.args.epilogue.residual ? p.args.epilogue.residual->data() : nullptr;
  out.gemm.y = p.y.data();
  out.gemm.rows = small(p.batch() * p.out_h() * p.out_w());
  out.gemm.channels = small(p.out_channels());
  out.gemm.depth = small(depth_of(p));
  out.batch = small(p.batch());
  out.height = small(p.height());
  out.width = small(p.width());
  out.channels = small(p.channels());
  out.filter_h = small(p.filter_h());
  out.filter_w = small(p.filter_w());
  out.out_h = small(p.out_h());
  out.out_w = small(p.out_w());
  out.stride = small(p.args.stride);
  out.pad_top = small(p.args.pad.top);
  out.pad_left = small(p.args.pad.left);
  out.pad_bottom = small(p.args.pad.bottom);
  out.pad_right = small(p.args.pad.right);
  out.act = act_of(p.args.epilogue.act).value();
  return out;
}

void run(Exec& ex, const ConvProblem& p) {
  const CkGemmTile& tile = tile_of(gpu_device(ex)->traits());
  const CkConvParams params = params_of(ex, p);
  const int64_t rows = p.batch() * p.out_h() * p.out_w();
  const int64_t tiles = ((rows + tile.m - 1) / tile.m) * ((p.out_channels() + tile.n - 1) / tile.n);
  launch_kernel(ex, p.info("ck"), *gpu_device(ex)->find_kernel(kernel_name(p)),
                {static_cast<uint32_t>(tiles), 1, 1}, static_cast<uint32_t>(tile.threads), 0, params);
}

}  // namespace

Impl<ConvProblem> conv2d_ck_impl() { return {"ck", supports, run}; }

}  // namespace rocm_sd
