// Problems for the templates of ck_sd_templates.hpp, against the double-precision references of the ops: for
// the bodies on the host (ScalarBench) and for the compiled examples on a GPU (template_examples.cpp).
//
// A Bench has put(tensor) and output(elements, dtype), which give addresses that a kernel can use,
// run<Template>(kernel, waves, params), and fetch(address, elements, dtype), which gives doubles.
#pragma once

#include <cstring>

#include "composable_kernels/arch/scalar.hpp"
#include "composable_kernels/ck_sd_templates.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

// The references of every op, on the host.
struct References {
  ForcedImpl attention{"attention", "ref"}, conv2d{"conv2d", "ref"}, linear{"linear", "ref"},
      group_norm{"group_norm", "ref"}, layer_norm{"layer_norm", "ref"}, elementwise{"elementwise", "ref"};
  Arena arena{host_device()};
  Exec ex{arena};
};

class ScalarBench {
 public:
  void* put(const Tensor& host) {
    kept_.push_back(host);
    return host.data();
  }
  void* output(int64_t elements, DType dtype) {
    kept_.push_back(make_tensor(host_device(), {elements}, dtype));
    std::memset(kept_.back().data(), 0xff, kept_.back().bytes());
    return kept_.back().data();
  }
  template <class Template>
  void run(const char*, int, const typename Template::Params& p) {
    const ck::Grid grid = Template::grid(p);
    std::vector<Vec8<Half>> lds((Template::kLdsBytes + 15) / 16);
    for (uint32_t z = 0; z < grid.z; ++z)
      for (uint32_t y = 0; y < grid.y; ++y)
        for (uint32_t x = 0; x < grid.x; ++x)
          Template::run(p, {x, y, z}, reinterpret_cast<char*>(lds.data()));
  }
  std::vector<double> fetch(const void* data, int64_t elements, DType dtype) {
    std::vector<float> values(static_cast<size_t>(elements));
    convert_elements(data, dtype, values.data(), DType::kF32, elements);
    return {values.begin(), values.end()};
  }

 private:
  std::vector<Tensor> kept_;
};

template <class T>
T* typed(void* data) {
  return static_cast<T*>(data);
}

// The bodies on the host and the grids on a GPU; tiles as in the examples.
using ScalarGemm = ck::BatchedGemm<Scalar, ck::ProductCfgOf<Half, 64, 64, 32, 1, 1, 2>>;
using ScalarConvolution = ck::Convolution<Scalar, ck::ProductCfgOf<Bf16, 64, 64, 32, 1, 1, 2>>;
using ScalarPack = ck::PackFilter<Scalar, Bf16>;
template <bool kAnyMask>
using ScalarAttention = ck::FusedAttention<Scalar, ck::AttentionCfg<Half, 64, 64, 32, 1, 2, kAnyMask>>;
using ScalarNorm = ck::GroupNormSilu<Scalar, ck::GroupNormCfg<Half, 2, 256, 16>>;
using ScalarBlock =
    ck::FusedTransformerBlock<Scalar, ck::TransformerBlockCfg<ck::ProductCfgOf<Half, 64, 64, 32, 1, 1, 2>,
                                                              ck::AttentionCfg<Half, 64, 64, 32, 1, 2>>>;

template <class Bench>
void check_batched_gemm(Bench& bench, int batch, int rows, int columns, int depth) {
  References references;
  const Tensor x = random_tensor({batch, rows, depth}, DType::kF16, 1),
               w = random_tensor({batch, columns, depth}, DType::kF16, 2, 0.1f),
               bias = random_tensor({columns}, DType::kF32, 3);
  ck::BatchedGemmParams<Half> p{};
  p.x = typed<Half>(bench.put(x));
  p.w = typed<Half>(bench.put(w));
  p.bias = typed<float>(bench.put(bias));
  p.y = typed<Half>(bench.output(int64_t{batch} * rows * columns, DType::kF16));
  p.x_stride = p.w_stride = p.depth = depth;
  p.y_stride = p.columns = columns;
  p.batch = batch;
  p.rows = rows;
  p.x_batch = int64_t{rows} * depth;
  p.w_batch = int64_t{columns} * depth;
  p.y_batch = int64_t{rows} * columns;
  p.act = EpilogueActivation::kGelu;
  bench.template run<ScalarGemm>("example_batched_gemm", 4, p);
  std::vector<double> want;
  for (int b = 0; b < batch; ++b) {
    const Tensor one = x.narrow(0, b, 1), matrix = w.narrow(0, b, 1).reshape({columns, depth});
    const auto y = to_doubles(linear(references.ex, one, {Weight(matrix), bias}, {.act = Activation::kGelu}));
    want.insert(want.end(), y.begin(), y.end());
  }
  expect_near(bench.fetch(p.y, int64_t{batch} * rows * columns, DType::kF16), want,
              reduction_tolerance(DType::kF16, depth));
}

template <class Bench>
void check_convolution(Bench& bench, const ConvGeometry& g) {
  References references;
  const DType dtype = DType::kBF16;
  const Tensor x = random_tensor({g.batch, g.height, g.width, g.channels}, dtype, 1),
               second = random_tensor({g.batch, g.height, g.width, g.second_channels}, dtype, 2),
               w = random_tensor({g.outputs, g.channels + g.second_channels, g.filter_h, g.filter_w}, dtype,
                                 3, 0.1f),
               bias = random_tensor({g.outputs}, DType::kF32, 4),
               shift = random_tensor({g.batch, g.outputs}, DType::kF32, 5),
               residual = random_tensor({g.batch, g.rows(), g.columns(), g.outputs}, dtype, 6);
  const FilterLayout layout = conv_filter_layout(g, 2);
  auto* packed = typed<Bf16>(bench.output(layout.outputs * layout.depth(), dtype));
  bench.template run<ScalarPack>("example_pack_filter", 0, {layout, typed<Bf16>(bench.put(w)), packed});
  const int64_t count = residual.numel();
  auto* y = typed<Bf16>(bench.output(count, dtype));
  auto p = conv_params<Bf16>(g, typed<Bf16>(bench.put(x)),
                             g.second_channels ? typed<Bf16>(bench.put(second)) : nullptr, packed, y);
  p.epilogue.bias = typed<float>(bench.put(bias));
  p.epilogue.shift = bench.put(shift);
  p.epilogue.residual = typed<Bf16>(bench.put(residual));
  p.epilogue.act = EpilogueActivation::kSilu;
  bench.template run<ScalarConvolution>("example_convolution", 4, p);
  const Tensor want = conv2d(references.ex, x, {Weight(w), bias},
                             {.stride = g.stride,
                              .pad = {g.pad_top, g.pad_left, g.pad_bottom, g.pad_right},
                              .upsample2x = g.doubled,
                              .second = g.second_channels ? &second : nullptr,
                              .epilogue = {&shift, &residual, Activation::kSilu}});
  expect_near(bench.fetch(y, count, dtype), to_doubles(want), reduction_tolerance(dtype, layout.depth()));
}

template <bool kAnyMask, class Bench>
void check_attention(Bench& bench, int batch, int heads, int queries, int keys) {
  References references;
  const int64_t row = int64_t{heads} * 64;
  const Tensor q = random_tensor({batch, queries, row}, DType::kF16, 1),
               k = random_tensor({batch, keys, row}, DType::kF16, 2),
               v = random_tensor({batch, keys, row}, DType::kF16, 3),
               mask = random_tensor({1, heads, queries, keys}, DType::kF32, 4);
  auto* y = typed<Half>(bench.output(batch * queries * row, DType::kF16));
  auto p = ck::attention_params<Half>(typed<Half>(bench.put(q)), typed<Half>(bench.put(k)),
                                      typed<Half>(bench.put(v)), y, batch, heads, queries, keys, 64, 0.125f);
  if (kAnyMask) {
    p.mask = typed<float>(bench.put(mask));
    p.mask_strides[1] = int64_t{queries} * keys;
    p.mask_strides[2] = keys;
    p.mask_strides[3] = 1;
  }
  bench.template run<ScalarAttention<kAnyMask>>(kAnyMask ? "example_attention_masked" : "example_attention",
                                                4, p);
  const Tensor want = attention(references.ex, q, k, v, {.heads = heads, .mask = kAnyMask ? &mask : nullptr});
  // Weights are rounded to 16 bits before the second product.
  expect_near(bench.fetch(y, batch * queries * row, DType::kF16), to_doubles(want),
              4 * reduction_tolerance(DType::kF16, keys + 64));
}

template <class Bench>
void check_group_norm_silu(Bench& bench, int images, int pixels, int channels, int groups) {
  References references;
  const Tensor x = random_tensor({images, pixels, 1, channels}, DType::kF16, 1),
               gain = random_tensor({channels}, DType::kF32, 2),
               bias = random_tensor({channels}, DType::kF32, 3);
  auto* y = typed<Half>(bench.output(x.numel(), DType::kF16));
  bench.template run<ScalarNorm>(
      "example_group_norm_silu", 0,
      ck::group_norm_silu_params<Half>(typed<Half>(bench.put(x)), typed<float>(bench.put(gain)),
                                       typed<float>(bench.put(bias)), y, images, pixels, channels, groups,
                                       1e-5f));
  const Tensor want =
      group_norm(references.ex, x, {gain, bias}, {.groups = groups, .act = Activation::kSilu});
  expect_near(bench.fetch(y, x.numel(), DType::kF16), to_doubles(want),
              reduction_tolerance(DType::kF16, int64_t{pixels} * channels / groups));
}

template <class Bench>
void check_transformer_block(Bench& bench, int images, int tokens, int context_tokens, int heads,
                             int context_channels) {
  References references;
  Exec& ex = references.ex;
  const DType dtype = DType::kF16;
  const int64_t c = int64_t{heads} * 64;
  uint64_t seed = 10;
  const auto weight = [&](int64_t out, int64_t in) {
    return random_tensor({out, in}, dtype, ++seed, 1 / std::sqrt(static_cast<float>(in)));
  };
  const auto vector = [&](int64_t n) { return random_tensor({n}, DType::kF32, ++seed); };
  const Tensor x = random_tensor({images, tokens, c}, dtype, 1),
               context = random_tensor({images, context_tokens, context_channels}, dtype, 2);
  const Tensor qkv = weight(3 * c, c), out1 = weight(c, c), q2 = weight(c, c),
               kv2 = weight(2 * c, context_channels), out2 = weight(c, c), widen = weight(8 * c, c),
               narrow = weight(c, 4 * c);
  const Tensor bias1 = vector(c), bias2 = vector(c), bias_widen = vector(8 * c), bias_narrow = vector(c);
  const NormWeight norm[] = {{vector(c), vector(c)}, {vector(c), vector(c)}, {vector(c), vector(c)}};

  TransformerBlockParams<Half> p{};
  // In place: what is put must not be what the reference reads.
  p.x = typed<Half>(
      bench.put(tensor_from(host_device(), x.shape(), to_floats(host_device(), x).data(), dtype)));
  p.context = typed<Half>(bench.put(context));
  const auto norm_of = [&](const NormWeight& w) {
    return TransformerBlockParams<Half>::Norm{typed<float>(bench.put(w.gain)),
                                              typed<float>(bench.put(w.bias))};
  };
  const auto linear_of = [&](const Tensor& w, const Tensor* bias) {
    return TransformerBlockParams<Half>::Linear{typed<Half>(bench.put(w)),
                                                bias ? typed<float>(bench.put(*bias)) : nullptr};
  };
  p.norm1 = norm_of(norm[0]);
  p.norm2 = norm_of(norm[1]);
  p.norm3 = norm_of(norm[2]);
  p.qkv = linear_of(qkv, nullptr);
  p.out1 = linear_of(out1, &bias1);
  p.q2 = linear_of(q2, nullptr);
  p.kv2 = linear_of(kv2, nullptr);
  p.out2 = linear_of(out2, &bias2);
  p.widen = linear_of(widen, &bias_widen);
  p.narrow = linear_of(narrow, &bias_narrow);
  p.work = typed<Half>(bench.output(images * transformer_block_work(tokens, context_tokens, c), dtype));
  p.images = images;
  p.tokens = tokens;
  p.context_tokens = context_tokens;
  p.channels = static_cast<int32_t>(c);
  p.context_channels = context_channels;
  p.heads = heads;
  p.eps = 1e-5f;
  bench.template run<ScalarBlock>("example_transformer_block", 4, p);

  const auto third = [&](const Tensor& all, int i) { return all.narrow(2, i * c, c); };
  const Tensor all = linear(ex, layer_norm(ex, x, norm[0]), {Weight(qkv), {}});
  Tensor h = linear(ex, attention(ex, third(all, 0), third(all, 1), third(all, 2), {.heads = heads}),
                    {Weight(out1), bias1}, {.residual = &x});
  const Tensor kv = linear(ex, context, {Weight(kv2), {}});
  h = linear(ex,
             attention(ex, linear(ex, layer_norm(ex, h, norm[1]), {Weight(q2), {}}), third(kv, 0),
                       third(kv, 1), {.heads = heads}),
             {Weight(out2), bias2}, {.residual = &h});
  const Tensor hidden = linear_geglu(ex, layer_norm(ex, h, norm[2]), {Weight(widen), bias_widen});
  h = linear(ex, hidden, {Weight(narrow), bias_narrow}, {.residual = &h});
  // Twelve phases, each of which rounds to 16 bits what the next one multiplies.
  expect_near(bench.fetch(p.x, images * tokens * c, dtype), to_doubles(h),
              12 * reduction_tolerance(dtype, 4 * c));
}

}  // namespace rocm_sd::testing_support
