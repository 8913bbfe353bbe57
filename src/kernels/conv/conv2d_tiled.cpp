// conv2d by the host's own GEMM over gathered rows.
#include "kernels/conv/conv2d_impl.hpp"
#include "kernels/gemm/tiled.hpp"

namespace rocm_sd {

Refusal conv2d_supports_tiled(const Exec& ex, const ConvProblem&) {
  if (ex.device().kind() != DeviceKind::kHost) return "the tensors are not on the host";
  return std::nullopt;
}

tiled::Product conv2d_gathered(const ConvProblem& p) {
  const Epilogue& e = p.args.epilogue;
  tiled::Product out;
  out.dtype = p.dtype();
  out.layout = tiled::layout_for(p.out_channels(), p.channels(), p.second_channels(),
                                 p.filter_h() * p.filter_w(), false);
  out.batch = p.batch();
  out.height = p.height();
  out.width = p.width();
  out.out_h = p.out_h();
  out.out_w = p.out_w();
  out.filter_h = p.filter_h();
  out.filter_w = p.filter_w();
  out.stride = p.args.stride;
  out.pad_top = p.args.pad.top;
  out.pad_left = p.args.pad.left;
  out.doubled = p.args.upsample2x;
  out.source[0] = p.x.data();
  out.pixel_stride[0] = p.channels();
  out.source[1] = p.args.second ? p.args.second->data() : nullptr;
  out.pixel_stride[1] = p.second_channels();
  out.out = p.y.data();
  out.out_pixel = p.out_channels();
  out.out_row = p.out_w() * p.out_channels();
  out.out_image = p.out_h() * out.out_row;
  out.residual = e.residual ? e.residual->data() : nullptr;
  out.act = e.act;
  out.bias = p.w.bias ? p.w.bias->as<float>() : nullptr;
  if (e.channel_shift) {
    out.shift = e.channel_shift->data();
    out.shift_dtype = e.channel_shift->dtype();
    out.shift_stride = e.channel_shift->stride(0);
  }
  return out;
}

void conv2d_tiled(Exec& ex, const ConvProblem& p) {
  tiled::Product product = conv2d_gathered(p);
  const auto weights = tiled::pack(p.w.weight, product.layout);
  product.weights = tiled::packed_data(*weights);
  const tiled::Plan plan = tiled::plan(product);
  const Tensor workspace = ex.alloc({static_cast<int64_t>(plan.workspace_bytes())}, DType::kU8);
  ex.launch(p.info("tiled"),
            [product, plan, weights, memory = workspace.data()] { tiled::run(product, plan, memory); });
}

}  // namespace rocm_sd
