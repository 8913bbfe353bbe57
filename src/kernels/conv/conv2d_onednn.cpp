// conv2d by oneDNN's convolutions. A channel shift becomes the bias of one image at a time; a second input is
// a convolution of its own whose float result the first one adds. An input that is to be doubled is doubled
// first: at AMX's speed that beats gathering with our own kernel.
#include <algorithm>
#include <cstring>

#include "kernels/conv/conv2d_impl.hpp"
#include "kernels/onednn.hpp"

namespace rocm_sd {
namespace {

// The channels [0,c1) and [c1,C) of a filter [K,C,R,S], each packed.
class SplitPack final : public Weight::Pack {
 public:
  SplitPack(const Shape& shape, int64_t c1, std::shared_ptr<const Weight::Pack> first,
            std::shared_ptr<const Weight::Pack> second)
      : shape_(shape), c1_(c1), first_(std::move(first)), second_(std::move(second)) {}
  size_t bytes() const override { return first_->bytes() + second_->bytes(); }
  Tensor unpack() const override {
    const Tensor first = first_->unpack(), second = second_->unpack();
    Tensor plain = make_tensor(host_device(), shape_, first.dtype());
    copy_channels(plain, first, 0, false);
    copy_channels(plain, second, c1_, false);
    return plain;
  }
  const std::shared_ptr<const Weight::Pack>& first() const { return first_; }
  const std::shared_ptr<const Weight::Pack>& second() const { return second_; }

  // Channels [at, at + part's) of a filter, as a tensor.
  static Tensor channels_of(const Tensor& plain, int64_t at, int64_t count) {
    Tensor part =
        make_tensor(host_device(), {plain.dim(0), count, plain.dim(2), plain.dim(3)}, plain.dtype());
    copy_channels(plain, part, at, true);
    return part;
  }

 private:
  static void copy_channels(const Tensor& plain, const Tensor& part, int64_t at, bool out_of_plain) {
    const size_t element = dtype_size(plain.dtype()) * static_cast<size_t>(plain.dim(2) * plain.dim(3));
    const size_t bytes = static_cast<size_t>(part.dim(1)) * element;
    for (int64_t k = 0; k < plain.dim(0); ++k) {
      char* whole = static_cast<char*>(plain.data()) + static_cast<size_t>(k * plain.dim(1) + at) * element;
      char* piece = static_cast<char*>(part.data()) + static_cast<size_t>(k) * bytes;
      std::memcpy(out_of_plain ? piece : whole, out_of_plain ? whole : piece, bytes);
    }
  }

  Shape shape_;
  int64_t c1_;
  std::shared_ptr<const Weight::Pack> first_, second_;
};

onednn::ProductSpec spec_of(const ConvProblem& p) {
  const Epilogue& e = p.args.epilogue;
  onednn::ProductSpec spec;
  spec.batch = e.channel_shift ? 1 : p.batch();
  spec.height = p.height() * (p.args.upsample2x ? 2 : 1);
  spec.width = p.width() * (p.args.upsample2x ? 2 : 1);
  spec.channels = p.channels();
  spec.out_channels = p.out_channels();
  spec.filter_h = p.filter_h();
  spec.filter_w = p.filter_w();
  spec.stride = p.args.stride;
  spec.pad_top = p.args.pad.top;
  spec.pad_left = p.args.pad.left;
  spec.pad_bottom = p.args.pad.bottom;
  spec.pad_right = p.args.pad.right;
  spec.dtype = p.dtype();
  spec.dst_dtype = spec.addend_dtype = p.out_dtype();
  spec.bias = p.w.bias.has_value() || e.channel_shift;
  spec.addend = e.residual != nullptr;
  spec.act = e.act;
  return spec;
}

// Each pixel [pixel_bytes] of x [rows, width] to 2 x 2 pixels of y [2 rows, 2 width].
struct Doubling {
  const char* x = nullptr;
  char* y = nullptr;  // null: nothing is doubled
  int64_t rows = 0, width = 0;
  size_t pixel_bytes = 0;

  void operator()() const {
    const size_t row_bytes = static_cast<size_t>(width) * pixel_bytes;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; ++i) {
      const char* from = x + static_cast<size_t>(i) * row_bytes;
      char* to = y + static_cast<size_t>(i) * 4 * row_bytes;
      for (int64_t j = 0; j < width; ++j, from += pixel_bytes, to += 2 * pixel_bytes) {
        std::memcpy(to, from, pixel_bytes);
        std::memcpy(to + pixel_bytes, from, pixel_bytes);
      }
      std::memcpy(to, to - 2 * row_bytes, 2 * row_bytes);
    }
  }
};

// Everything that the launch needs, by value.
struct Run {
  Doubling doubling;
  onednn::Prepared first, second;  // second.product may be null
  int64_t passes = 1, outputs = 0;
  const char *x = nullptr, *x2 = nullptr, *residual = nullptr;
  char* y = nullptr;
  size_t x_bytes = 0, x2_bytes = 0, y_bytes = 0;  // of one pass
  const float* bias = nullptr;
  const char* shift = nullptr;
  DType shift_dtype = DType::kF32;
  size_t shift_bytes = 0;  // from one image to the next
  float *shifted_bias = nullptr, *partial = nullptr;
  void* scratchpad = nullptr;

  void operator()() const {
    if (doubling.y) doubling();
    for (int64_t n = 0; n < passes; ++n) {
      const auto pass = static_cast<size_t>(n);
      onednn::ProductArgs args{.src = x + pass * x_bytes,
                               .weights = onednn::packed_data(*first.pack),
                               .bias = bias,
                               .addend = residual ? residual + pass * y_bytes : nullptr,
                               .dst = y + pass * y_bytes,
                               .scratchpad = scratchpad};
      if (shift) {
        convert_elements(shift + pass * shift_bytes, shift_dtype, shifted_bias, DType::kF32, outputs);
        for (int64_t k = 0; bias && k < outputs; ++k) shifted_bias[k] += bias[k];
        args.bias = shifted_bias;
      }
      if (second.product) {
        second.product->execute({.src = x2 + pass * x2_bytes,
                                 .weights = onednn::packed_data(*second.pack),
                                 .dst = partial,
                                 .scratchpad = scratchpad});
        args.addend = partial;
      }
      first.product->execute(args);
    }
  }
};

void prepare_two_inputs(const ConvProblem& p, Run& run) {
  onednn::ProductSpec spec = spec_of(p), second = spec;
  spec.addend = true;
  spec.addend_dtype = second.dst_dtype = DType::kF32;
  second.channels = p.second_channels();
  second.bias = false;
  second.act = Activation::kNone;
  const std::string key = concat("onednn ", p.channels(), "+", p.second_channels());
  const auto earlier = std::dynamic_pointer_cast<const SplitPack>(p.w.weight.find(key));
  run.first.product = onednn::product(spec, earlier ? earlier->first().get() : nullptr);
  run.second.product = onednn::product(second, earlier ? earlier->second().get() : nullptr);
  const auto make = [&](const Tensor& plain) -> std::shared_ptr<const Weight::Pack> {
    return std::make_shared<SplitPack>(
        plain.shape(), p.channels(), run.first.product->pack(SplitPack::channels_of(plain, 0, p.channels())),
        run.second.product->pack(SplitPack::channels_of(plain, p.channels(), p.second_channels())));
  };
  const bool kept =
      earlier && run.first.product->takes(*earlier->first()) && run.second.product->takes(*earlier->second());
  const std::string layouts =
      concat(run.first.product->weights_layout(), " and ", run.second.product->weights_layout());
  const auto pack = kept ? earlier
                         : std::dynamic_pointer_cast<const SplitPack>(
                               p.w.weight.packed(earlier ? concat(key, " ", layouts) : key, make));
  run.first.pack = pack->first();
  run.second.pack = pack->second();
}

}  // namespace

Refusal conv2d_supports_onednn(const Exec& ex, const ConvProblem& p) {
  if (ex.device().kind() != DeviceKind::kHost) return "the tensors are not on the host";
  if (p.args.second && p.args.upsample2x) return "it does not double two inputs";
  if (p.args.epilogue.channel_scale) return "a scale of channels";
  if (p.args.epilogue.slopes) return "slopes";
  if (p.args.second && p.args.epilogue.residual) return "a second input together with a residual";
  const Padding& pad = p.args.pad;
  if (p.filter_h() * p.filter_w() == 1 && p.args.epilogue.residual &&
      pad.top + pad.left + pad.bottom + pad.right)
    return "a residual on a padded 1x1 filter, which oneDNN 2.6 reads at the wrong places";
  return onednn::refuses(p.dtype());
}

void conv2d_onednn(Exec& ex, const ConvProblem& p) {
  const Epilogue& e = p.args.epilogue;
  const auto bytes_of = [&](const Tensor& t, int64_t passes) {
    return t.bytes() / static_cast<size_t>(passes);
  };
  Run run;
  if (p.args.second)
    prepare_two_inputs(p, run);
  else
    run.first = onednn::prepare(spec_of(p), p.w.weight);
  run.passes = e.channel_shift ? p.batch() : 1;
  run.outputs = p.out_channels();
  Tensor doubled;
  if (p.args.upsample2x) {
    doubled = ex.alloc({p.batch(), 2 * p.height(), 2 * p.width(), p.channels()}, p.dtype());
    run.doubling = {.x = static_cast<const char*>(p.x.data()),
                    .y = static_cast<char*>(doubled.data()),
                    .rows = p.batch() * p.height(),
                    .width = p.width(),
                    .pixel_bytes = static_cast<size_t>(p.channels()) * dtype_size(p.dtype())};
  }
  const Tensor& x = p.args.upsample2x ? doubled : p.x;
  run.x = static_cast<const char*>(x.data());
  run.x_bytes = bytes_of(x, run.passes);
  run.y = static_cast<char*>(p.y.data());
  run.y_bytes = bytes_of(p.y, run.passes);
  run.bias = p.w.bias ? p.w.bias->as<float>() : nullptr;
  if (e.residual) run.residual = static_cast<const char*>(e.residual->data());
  size_t scratchpad_bytes = run.first.product->scratchpad_bytes();
  Tensor shifted_bias, partial;
  if (p.args.second) {
    run.x2 = static_cast<const char*>(p.args.second->data());
    run.x2_bytes = bytes_of(*p.args.second, run.passes);
    scratchpad_bytes = std::max(scratchpad_bytes, run.second.product->scratchpad_bytes());
    partial = ex.alloc({p.y.numel() / run.passes}, DType::kF32);
    run.partial = partial.as<float>();
  }
  if (e.channel_shift) {
    run.shift = static_cast<const char*>(e.channel_shift->data());
    run.shift_dtype = e.channel_shift->dtype();
    run.shift_bytes = static_cast<size_t>(e.channel_shift->stride(0)) * dtype_size(run.shift_dtype);
    shifted_bias = ex.alloc({p.out_channels()}, DType::kF32);
    run.shifted_bias = shifted_bias.as<float>();
  }
  const Tensor scratch = ex.alloc({static_cast<int64_t>(scratchpad_bytes)}, DType::kU8);
  run.scratchpad = scratch.data();
  ex.launch(p.info("onednn"), run);
}

}  // namespace rocm_sd
