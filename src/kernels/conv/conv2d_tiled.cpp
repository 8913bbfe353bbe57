// conv2d by the host's own GEMM over gathered rows.
#include "kernels/conv/conv2d_tiled.hpp"

#include <vector>

#include "base/error.hpp"

namespace rocm_sd {

Refusal conv2d_supports_tiled(const Exec& ex, const ConvProblem& p) {
  if (ex.device().kind() != DeviceKind::kHost) return "the tensors are not on the host";
  if (p.dtype() == DType::kF16) return "f16 runs on a GPU only";
  if (p.args.epilogue.channel_scale) return "a scale of channels";
  if (p.args.epilogue.slopes) return "slopes";
  return std::nullopt;
}

tiled::Product conv2d_gathered(const ConvProblem& p) {
  const Epilogue& e = p.args.epilogue;
  tiled::Product out;
  out.dtype = p.dtype();
  out.out_dtype = p.out_dtype();
  out.layout = tiled::layout_for(p.dtype(), p.out_channels(), p.channels(), p.second_channels(),
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

namespace {

// A 3x3 filter on an image doubled by nearest neighbour sees each small pixel several times: the output
// pixels of one parity (row 2p+a, column 2q+b) are a 2x2 filter on the small image, whose rows are w0 and w1
// + w2 for a = 0, w0 + w1 and w2 for a = 1. Four such products are 4/9 of the work.
bool has_phases(const ConvProblem& p) {
  const Padding& pad = p.args.pad;
  return p.args.upsample2x && !p.args.second && p.filter_h() == 3 && p.filter_w() == 3 &&
         p.args.stride == 1 && pad.top == 1 && pad.left == 1 && pad.bottom == 1 && pad.right == 1;
}

// The filter of the phase (a, b): [K,C,3,3] -> [K,C,2,2] in dtype, summed in float.
Tensor phase_filter(const Tensor& plain, int a, int b, DType dtype) {
  const int64_t filters = plain.dim(0) * plain.dim(1);
  std::vector<float> w(static_cast<size_t>(plain.numel())), sums(static_cast<size_t>(4 * filters), 0.0f);
  convert_elements(plain.data(), plain.dtype(), w.data(), DType::kF32, plain.numel());
  for (int64_t i = 0; i < filters; ++i)
    for (int r = 0; r < 3; ++r)
      for (int s = 0; s < 3; ++s) sums[i * 4 + (r + 1 - a) / 2 * 2 + (s + 1 - b) / 2] += w[i * 9 + r * 3 + s];
  return tensor_from(host_device(), {plain.dim(0), plain.dim(1), 2, 2}, sums.data(), dtype);
}

// The four phases' filters. The plain filter cannot be had back from their sums, so it is kept as well.
class PhasePack final : public Weight::Pack {
 public:
  PhasePack(const Tensor& plain, const tiled::Layout& layout, DType dtype) {
    for (int phase = 0; phase < 4; ++phase)
      phases_[phase] = tiled::pack_plain(phase_filter(plain, phase / 2, phase % 2, dtype), layout);
  }
  size_t bytes() const override { return 4 * phases_[0]->bytes(); }
  Tensor unpack() const override { throw InternalError("the phases of a filter do not give it back"); }
  const Weight::Pack& phase(int i) const { return *phases_[i]; }

 private:
  std::shared_ptr<const Weight::Pack> phases_[4];
};

void conv2d_phases(Exec& ex, const ConvProblem& p) {
  tiled::Product base = conv2d_gathered(p);
  base.layout = tiled::layout_for(p.dtype(), p.out_channels(), p.channels(), 0, 4, false);
  base.filter_h = base.filter_w = 2;
  base.doubled = false;
  base.out_h = p.height();
  base.out_w = p.width();
  const int64_t out_row = base.out_row, out_pixel = base.out_pixel;
  base.out_row = 2 * out_row;
  base.out_pixel = 2 * out_pixel;
  const DType stored = p.w.weight.is_stored_short() ? p.w.weight.stored_as() : p.w.weight.dtype();
  const auto weights = std::dynamic_pointer_cast<const PhasePack>(p.w.weight.packed(
      "phases of " + base.layout.key(),
      [&](const Tensor& plain) { return std::make_shared<PhasePack>(plain, base.layout, stored); }, true));
  base.weight_dtype = stored;
  const tiled::Plan plan = tiled::plan(base);
  const Tensor workspace = ex.alloc({static_cast<int64_t>(plan.workspace_bytes())}, DType::kU8);
  ex.launch(p.info("tiled phases"), [=, memory = workspace.data()] {
    for (int a : {0, 1})
      for (int b : {0, 1}) {
        tiled::Product phase = base;
        phase.weights = tiled::packed_data(weights->phase(2 * a + b));
        phase.pad_top = 1 - a;
        phase.pad_left = 1 - b;
        phase.out_first = a * out_row + b * out_pixel;
        tiled::run(phase, plan, memory);
      }
  });
}

}  // namespace

void conv2d_tiled(Exec& ex, const ConvProblem& p) {
  if (has_phases(p)) return conv2d_phases(ex, p);
  tiled::Product product = conv2d_gathered(p);
  const auto weights = tiled::pack(p.w.weight, product.layout);
  product.weights = tiled::packed_data(*weights);
  product.weight_dtype = tiled::packed_dtype(*weights);
  const tiled::Plan plan = tiled::plan(product);
  const Tensor workspace = ex.alloc({static_cast<int64_t>(plan.workspace_bytes())}, DType::kU8);
  ex.launch(p.info("tiled"),
            [product, plan, weights, memory = workspace.data()] { tiled::run(product, plan, memory); });
}

}  // namespace rocm_sd
