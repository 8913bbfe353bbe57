#include "kernels/conv/conv2d.hpp"

#include "base/error.hpp"
#include "kernels/conv/ck_conv.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/conv/conv2d_impl.hpp"
#include "kernels/conv/conv2d_vendor.hpp"
#include "kernels/problem.hpp"
#include "kernels/result_type.hpp"

namespace rocm_sd {
namespace {

// Our own kernels first: a vendor's library is taken where a tuning table names it.
ImplList<ConvProblem> with_vendors(ImplList<ConvProblem> list) {
  const std::vector<Impl<ConvProblem>> vendors = conv2d_vendor_impls();
  list.impls.insert(list.impls.end(), vendors.begin(), vendors.end());
  list.impls.push_back(conv2d_ck_impl());
  return list;
}

const ImplList<ConvProblem> kImpls =
    with_vendors({"conv2d",
                  {
                      {"gpu", conv2d_supports_gpu, conv2d_gpu, &kConvGpuConfigs},
                      {"winograd", conv2d_supports_winograd, conv2d_winograd},
                      {"tiled", conv2d_supports_tiled, conv2d_tiled},
                      {"onednn", conv2d_supports_onednn, conv2d_onednn},
                      {"ref", supports_host<ConvProblem>, conv2d_ref},
                  }});

// Where the CPU multiplies bf16 in hardware (AVX512-BF16, AMX) oneDNN's products are the fastest: measured on
// a Xeon with AMX, where the tiled kernel's pairs stayed below its own f32.
const ImplList<ConvProblem> kHardwareBf16 =
    with_vendors({"conv2d",
                  {
                      {"gpu", conv2d_supports_gpu, conv2d_gpu, &kConvGpuConfigs},
                      {"onednn", conv2d_supports_onednn, conv2d_onednn},
                      {"tiled", conv2d_supports_tiled, conv2d_tiled},
                      {"ref", supports_host<ConvProblem>, conv2d_ref},
                  }});

const ImplList<ConvProblem>& impls_for(const ConvProblem& p) {
  return p.dtype() == DType::kBF16 && host_has_bf16() ? kHardwareBf16 : kImpls;
}

// Whether x [N,H,W,C] is a whole map, or where such are taken a part of a map's channels.
bool is_map(const Exec& ex, const Tensor& x) {
  if (x.rank() != 4) return false;
  if (x.is_contiguous()) return true;
  const int64_t pixel = x.stride(2);
  const auto pieces = [&](int64_t elements) {
    return elements * static_cast<int64_t>(dtype_size(x.dtype())) % 16 == 0;
  };
  return conv2d_takes_parts(ex) && x.stride(3) == 1 && pixel >= x.dim(3) && x.stride(1) == x.dim(2) * pixel &&
         x.stride(0) == x.dim(1) * x.stride(1) && pieces(pixel) && pieces(x.dim(3)) &&
         x.offset_bytes() % 16 == 0;
}

void check_inputs(const Exec& ex, const Tensor& x, const ConvWeight& w, const ConvArgs& args) {
  require(static_cast<bool>(x) && static_cast<bool>(w.weight), "conv2d: an operand is empty");
  const Shape& filter = w.weight.shape();
  require(filter.rank() == 4 && filter.numel() > 0, "conv2d: expected a weight [K,C,R,S], got ", filter);
  require(is_map(ex, x), "conv2d: expected a contiguous x [N,H,W,C], got ", x.shape());
  require(x.dtype() == DType::kF32 || x.dtype() == DType::kF16 || x.dtype() == DType::kBF16, "conv2d: x is ",
          x.dtype(), ", expected f32, f16 or bf16");
  require(x.dtype() == w.weight.dtype(), "conv2d: x is ", x.dtype(), ", the weight ", w.weight.dtype());
  int64_t channels = x.dim(3);
  if (const Tensor* second = args.second) {
    require(is_map(ex, *second) && second->dtype() == x.dtype() && second->dim(0) == x.dim(0) &&
                second->dim(1) == x.dim(1) && second->dim(2) == x.dim(2) && second->dim(3) > 0,
            "conv2d: the second input ", second->shape(), " of ", second->dtype(), " does not fit x ",
            x.shape(), " of ", x.dtype());
    channels += second->dim(3);
  }
  require(x.dim(3) > 0 && channels == filter[1], "conv2d: the weight ", filter, " takes ", filter[1],
          " channels, the input has ", channels);
  if (w.bias)
    require(w.bias->shape() == Shape{filter[0]} && w.bias->dtype() == DType::kF32 && w.bias->is_contiguous(),
            "conv2d: expected a bias [", filter[0], "] of f32, got ", w.bias->shape(), " of ",
            w.bias->dtype());
}

Shape output_shape(const Tensor& x, const ConvWeight& w, const ConvArgs& args) {
  const Padding& pad = args.pad;
  require(args.stride >= 1, "conv2d: stride ", args.stride, " is not positive");
  require(pad.top >= 0 && pad.left >= 0 && pad.bottom >= 0 && pad.right >= 0, "conv2d: negative padding");
  const int64_t scale = args.upsample2x ? 2 : 1;
  const int64_t h = scale * x.dim(1) + pad.top + pad.bottom, width = scale * x.dim(2) + pad.left + pad.right;
  const int64_t filter_h = w.weight.dim(2), filter_w = w.weight.dim(3);
  require(h >= filter_h && width >= filter_w, "conv2d: the filter ", w.weight.shape(),
          " is larger than the padded input [", h, ",", width, "]");
  return {x.dim(0), (h - filter_h) / args.stride + 1, (width - filter_w) / args.stride + 1, w.weight.dim(0)};
}

void check_change(const FilterChange& change, const ConvWeight& w) {
  require(change.up && change.down && *change.up && *change.down,
          "conv2d: an operand of the filter's change is empty");
  const Shape& up = change.up->shape();
  Shape down = w.weight.shape();
  require(up.rank() == 2 && up[0] == down[0] && up[1] > 0 && change.up->dtype() == w.weight.dtype(),
          "conv2d: expected a change up [", down[0], ",r] of ", w.weight.dtype(), ", got ", up, " of ",
          change.up->dtype());
  down[0] = up[1];
  require(change.down->shape() == down && change.down->dtype() == w.weight.dtype() &&
              change.down->stored_as() == w.weight.dtype(),
          "conv2d: expected a change down ", down, " of ", w.weight.dtype(), ", got ", change.down->shape(),
          " of ", change.down->stored_as());
}

void check_into(const Exec& ex, const ConvArgs& args, const Shape& shape, DType dtype) {
  const Tensor& y = *args.into;
  require(conv2d_takes_parts(ex), "conv2d: a tensor to write into is not taken here");
  require(y.shape() == shape && y.dtype() == dtype && is_map(ex, y),
          "conv2d: expected [N,P,Q,K] to write into, a map or a part of its channels, of ", shape, " and ",
          dtype, ", got ", y.shape(), " of ", y.dtype());
  if (const Tensor* residual = args.epilogue.residual)
    require(is_map(ex, *residual) && residual->stride(2) == y.stride(2),
            "conv2d: pixels of the residual and of the result are to be equally far apart");
}

void check_epilogue(const ConvArgs& args, const Shape& shape, DType dtype, DType out_dtype) {
  const Epilogue& epilogue = args.epilogue;
  if (const Tensor* shift = epilogue.channel_shift)
    require(shift->shape() == Shape{shape[0], shape[3]} && (shape[3] == 1 || shift->stride(1) == 1) &&
                (shift->dtype() == DType::kF32 || shift->dtype() == dtype),
            "conv2d: expected a channel shift [", shape[0], ",", shape[3], "] of f32 or ", dtype, ", got ",
            shift->shape(), " of ", shift->dtype());
  require(!epilogue.low_rank, "conv2d: a low-rank term is not taken here");
  if (const Tensor* scale = epilogue.channel_scale)
    require(scale->rank() == 2 && scale->dtype() == DType::kF32 && scale->is_contiguous() &&
                (scale->dim(1) == shape[3] || scale->dim(1) == 1) && scale->dim(0) > 0 &&
                shape[0] * shape[1] * shape[2] % scale->dim(0) == 0,
            "conv2d: expected a channel scale [N,", shape[3], "] or [N,1] of f32, N a divisor of ",
            shape[0] * shape[1] * shape[2], " pixels, got ", scale->shape(), " of ", scale->dtype());
  if (const Tensor* slopes = epilogue.slopes)
    require(slopes->shape() == Shape{shape[3]} && slopes->dtype() == DType::kF32 && slopes->is_contiguous() &&
                epilogue.act == Activation::kNone,
            "conv2d: expected slopes [", shape[3], "] of f32 and no activation, got ", slopes->shape(),
            " of ", slopes->dtype(), " and ", activation_name(epilogue.act));
  if (const Tensor* residual = epilogue.residual)
    require(residual->shape() == shape && residual->dtype() == out_dtype &&
                (residual->is_contiguous() || args.into),
            "conv2d: expected a contiguous residual ", shape, " of ", out_dtype, ", got ", residual->shape(),
            " of ", residual->dtype());
}

}  // namespace

ConvSpec ConvProblem::spec() const {
  ConvSpec out{.dtype = dtype(),
               .batch = batch(),
               .height = height(),
               .width = width(),
               .channels = channels(),
               .second_channels = second_channels(),
               .out_channels = out_channels(),
               .filter_h = filter_h(),
               .filter_w = filter_w(),
               .stride = args.stride,
               .pad_top = args.pad.top,
               .pad_left = args.pad.left,
               .pad_bottom = args.pad.bottom,
               .pad_right = args.pad.right,
               .upsample2x = args.upsample2x,
               .bias = w.bias.has_value(),
               .shift = args.epilogue.channel_shift != nullptr,
               .residual = args.epilogue.residual != nullptr,
               .act = args.epilogue.act,
               .scales = args.epilogue.channel_scale ? args.epilogue.channel_scale->dim(0) : 0,
               .shared_scale = args.epilogue.channel_scale && args.epilogue.channel_scale->dim(1) == 1,
               .slopes = args.epilogue.slopes != nullptr};
  if (w.weight.stored_as() != dtype()) out.weight = w.weight.stored_as();
  if (out_dtype() != dtype()) out.result = out_dtype();
  return out;
}
std::string ConvProblem::describe() const { return text_of(spec()); }

OpInfo ConvProblem::info(const char* impl) const {
  const double products =
      static_cast<double>(batch() * out_h() * out_w()) * static_cast<double>(w.weight.shape().numel());
  const auto read =
      static_cast<double>(x.numel() + (args.second ? args.second->numel() : 0) + w.weight.shape().numel());
  const auto written = static_cast<double>(y.numel() * (args.epilogue.residual ? 2 : 1));
  return {"conv2d", concat(impl, " ", describe()), 2 * products,
          read * static_cast<double>(dtype_size(dtype())) +
              written * static_cast<double>(dtype_size(out_dtype()))};
}

bool conv2d_takes_change(const Exec& ex, const ConvWeight& w, const ConvArgs& args) {
  return w.weight.stored_as() == w.weight.dtype() && !args.upsample2x && conv2d_takes_parts(ex);
}

bool conv2d_takes_parts(const Exec& ex) {
  const std::string forced = forced_impl("conv2d");
  return ex.device().kind() != DeviceKind::kHost && (forced.empty() || forced.starts_with("gpu"));
}

bool conv2d_takes_slopes(const Exec& ex) { return ex.device().kind() != DeviceKind::kHost; }

Tensor conv2d(Exec& ex, const Tensor& x, const ConvWeight& w, const ConvArgs& args) {
  check_inputs(ex, x, w, args);
  if (args.change) {
    require(conv2d_takes_change(ex, w, args), "conv2d: a change of the filter is not taken here");
    check_change(*args.change, w);
  }
  const Shape shape = output_shape(x, w, args);  // [N,P,Q,K]
  const DType dtype = result_dtype("conv2d", x, args.epilogue);
  check_epilogue(args, shape, x.dtype(), dtype);
  if (args.into) check_into(ex, args, shape, dtype);
  const Tensor y = args.into ? *args.into : ex.alloc(shape, dtype);
  if (y.numel() == 0) return y;
  const ConvProblem problem{x, w, args, y};
  select(ex, impls_for(problem), problem).run(ex, problem);
  return y;
}

}  // namespace rocm_sd
