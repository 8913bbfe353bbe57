// The C interface on the host: every op against the ops' double-precision references, and what it refuses.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/attention/attention.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/select.hpp"
#include "rocm_sd/kernels.h"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using testing_support::expect_near;
using testing_support::random_tensor;
using testing_support::reduction_tolerance;
using testing_support::to_doubles;

class KernelsCApi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(rocm_sd_kernels_open("cpu", &context_), ROCM_SD_KERNELS_OK) << rocm_sd_kernels_last_error();
  }
  void TearDown() override {
    for (rocm_sd_kernels_plan* plan : plans_) rocm_sd_kernels_plan_free(plan);
    rocm_sd_kernels_close(context_);
  }

  template <class Desc>
  rocm_sd_kernels_plan* plan(rocm_sd_kernels_status (*make)(rocm_sd_kernels_context*, const Desc*,
                                                            rocm_sd_kernels_plan**),
                             const Desc& desc) {
    rocm_sd_kernels_plan* out = nullptr;
    EXPECT_EQ(make(context_, &desc, &out), ROCM_SD_KERNELS_OK) << rocm_sd_kernels_last_error();
    plans_.push_back(out);
    return out;
  }

  // A poisoned output.
  Tensor output(const Shape& shape, DType dtype) {
    Tensor y = make_tensor(host_device(), shape, dtype);
    std::memset(y.data(), 0xff, y.bytes());
    return y;
  }
  static rocm_sd_kernels_operands operands() {
    rocm_sd_kernels_operands o{};
    o.size = sizeof(o);
    return o;
  }
  static void launch(rocm_sd_kernels_plan* plan, const rocm_sd_kernels_operands& o) {
    ASSERT_EQ(rocm_sd_kernels_launch(plan, &o, nullptr), ROCM_SD_KERNELS_OK) << rocm_sd_kernels_last_error();
  }

  Arena arena_{host_device()};
  Exec ex_{arena_};
  rocm_sd_kernels_context* context_ = nullptr;
  std::vector<rocm_sd_kernels_plan*> plans_;
};

rocm_sd_kernels_attention attention_desc(rocm_sd_kernels_dtype dtype) {
  rocm_sd_kernels_attention p{};
  p.size = sizeof(p);
  p.dtype = dtype;
  p.batch = 2;
  p.heads = 3;
  p.queries = 21;
  p.keys = 19;
  p.head_dim = 24;
  return p;
}

// [a,b,c,d] -> [a,c,b,d].
Tensor swap_middle(const Tensor& x, int64_t a, int64_t b, int64_t c, int64_t d) {
  const std::vector<float> from = to_floats(host_device(), x);
  std::vector<float> to(from.size());
  for (int64_t i = 0; i < a; ++i)
    for (int64_t j = 0; j < b; ++j)
      for (int64_t k = 0; k < c; ++k)
        for (int64_t l = 0; l < d; ++l)
          to[static_cast<size_t>(((i * c + k) * b + j) * d + l)] =
              from[static_cast<size_t>(((i * b + j) * c + k) * d + l)];
  return tensor_from(host_device(), {a, c, b, d}, to.data(), x.dtype());
}

TEST_F(KernelsCApi, AttentionInEitherLayout) {
  for (const auto& [dtype, c_dtype] : {std::pair{DType::kF32, ROCM_SD_KERNELS_F32},
                                       {DType::kF16, ROCM_SD_KERNELS_F16},
                                       {DType::kBF16, ROCM_SD_KERNELS_BF16}}) {
    auto p = attention_desc(c_dtype);
    const Tensor q = random_tensor({2, 21, 72}, dtype, 1), k = random_tensor({2, 19, 72}, dtype, 2),
                 v = random_tensor({2, 19, 72}, dtype, 3), mask = random_tensor({3, 21, 19}, DType::kF32, 4);
    for (const bool masked : {false, true}) {
      p.masked = masked;
      p.mask_strides[1] = masked ? 21 * 19 : 0;
      p.mask_strides[2] = masked ? 19 : 0;
      const Tensor broadcast = mask.reshape({1, 3, 21, 19});
      Tensor want;
      {
        const ForcedImpl ref("attention", "ref");
        want = attention(ex_, q, k, v, {.heads = 3, .mask = masked ? &broadcast : nullptr});
      }
      const double tolerance = 4 * reduction_tolerance(dtype, 19 + 24);
      auto o = operands();
      Tensor y = output({2, 21, 72}, dtype);
      o.q = q.data(), o.k = k.data(), o.v = v.data(), o.y = y.data();
      o.mask = masked ? mask.as<float>() : nullptr;
      p.q = p.k = p.v = p.y = {0, 0, 0};
      launch(plan(rocm_sd_kernels_plan_attention, p), o);
      expect_near(to_doubles(y), to_doubles(want), tolerance, "heads in rows");

      if (masked) {  // one mask for each head is not at even distances over two images
        p.mask_strides[0] = 3 * 21 * 19;
        std::vector<float> twice = to_floats(host_device(), mask);
        twice.insert(twice.end(), twice.begin(), twice.end());
        const Tensor both = tensor_from(host_device(), {2, 3, 21, 19}, twice.data());
        o.mask = both.as<float>();
        p.q = p.y = {3 * 21 * 24, 21 * 24, 24};
        p.k = p.v = {3 * 19 * 24, 19 * 24, 24};
        const Tensor qm = swap_middle(q, 2, 21, 3, 24), km = swap_middle(k, 2, 19, 3, 24),
                     vm = swap_middle(v, 2, 19, 3, 24);
        Tensor ym = output({2, 3, 21, 24}, dtype);
        o.q = qm.data(), o.k = km.data(), o.v = vm.data(), o.y = ym.data();
        launch(plan(rocm_sd_kernels_plan_attention, p), o);
        expect_near(to_doubles(swap_middle(ym, 2, 3, 21, 24)), to_doubles(want), tolerance,
                    "heads as matrices");
      }
    }
  }
}

TEST_F(KernelsCApi, LinearWithEveryEpilogue) {
  const DType dtype = DType::kF32;
  const Tensor wide = random_tensor({37, 72}, dtype, 1), w = random_tensor({48, 40}, dtype, 2, 0.2f),
               bias = random_tensor({48}, dtype, 3), residual = random_tensor({37, 48}, dtype, 4);
  const Tensor x = wide.narrow(1, 16, 40);
  rocm_sd_kernels_linear p{};
  p.size = sizeof(p);
  p.rows = 37;
  p.in = 40;
  p.out = 48;
  p.x_stride = 72;
  p.has_bias = p.has_residual = 1;
  p.activation = ROCM_SD_KERNELS_GELU;
  auto o = operands();
  Tensor y = output({37, 48}, dtype);
  o.x = x.data(), o.weight = w.data(), o.bias = bias.as<float>(), o.residual = residual.data(),
  o.y = y.data();
  launch(plan(rocm_sd_kernels_plan_linear, p), o);
  const ForcedImpl ref("linear", "ref");
  const LinearWeight weight{Weight(w), bias};
  expect_near(to_doubles(y),
              to_doubles(linear(ex_, x, weight, {.residual = &residual, .act = Activation::kGelu})),
              reduction_tolerance(dtype, 40));

  p.gated = 1;
  p.out = 24;
  p.has_residual = 0;
  p.activation = ROCM_SD_KERNELS_NO_ACTIVATION;
  Tensor gated = output({37, 24}, dtype);
  o.residual = nullptr, o.y = gated.data();
  launch(plan(rocm_sd_kernels_plan_linear, p), o);
  expect_near(to_doubles(gated), to_doubles(linear_geglu(ex_, x, {Weight(w), bias})),
              reduction_tolerance(dtype, 40));
}

TEST_F(KernelsCApi, ConvolutionOfTwoInputs) {
  const DType dtype = DType::kF32;
  const Tensor x = random_tensor({2, 7, 9, 8}, dtype, 1), second = random_tensor({2, 7, 9, 5}, dtype, 2),
               w = random_tensor({6, 13, 3, 3}, dtype, 3, 0.2f), bias = random_tensor({6}, dtype, 4),
               shift = random_tensor({2, 6}, dtype, 5), residual = random_tensor({2, 4, 5, 6}, dtype, 6);
  rocm_sd_kernels_conv2d p{};
  p.size = sizeof(p);
  p.batch = 2, p.height = 7, p.width = 9, p.channels = 8, p.second_channels = 5;
  p.out_channels = 6, p.filter_h = p.filter_w = 3, p.stride = 2;
  p.pad_top = p.pad_left = p.pad_bottom = p.pad_right = 1;
  p.has_bias = p.has_channel_shift = p.has_residual = 1;
  p.activation = ROCM_SD_KERNELS_SILU;
  auto o = operands();
  Tensor y = output({2, 4, 5, 6}, dtype);
  o.x = x.data(), o.second = second.data(), o.weight = w.data(), o.bias = bias.as<float>();
  o.channel_shift = shift.as<float>(), o.residual = residual.data(), o.y = y.data();
  launch(plan(rocm_sd_kernels_plan_conv2d, p), o);
  const ForcedImpl ref("conv2d", "ref");
  const Tensor want = conv2d(ex_, x, {Weight(w), bias},
                             {.stride = 2,
                              .pad = Padding::same(1),
                              .second = &second,
                              .epilogue = {&shift, &residual, Activation::kSilu}});
  expect_near(to_doubles(y), to_doubles(want), reduction_tolerance(dtype, 13 * 9));
}

TEST_F(KernelsCApi, NormsAndGeglu) {
  const DType dtype = DType::kBF16;
  const Tensor x = random_tensor({2, 35, 1, 24}, dtype, 1), second = random_tensor({2, 35, 1, 8}, dtype, 2),
               gain = random_tensor({32}, DType::kF32, 3), bias = random_tensor({32}, DType::kF32, 4);
  rocm_sd_kernels_group_norm p{};
  p.size = sizeof(p);
  p.dtype = ROCM_SD_KERNELS_BF16;
  p.batch = 2, p.pixels = 35, p.channels = 24, p.second_channels = 8, p.groups = 4;
  p.eps = 1e-5f;
  p.activation = ROCM_SD_KERNELS_SILU;
  auto o = operands();
  Tensor y = output({2, 35, 1, 32}, dtype);
  o.x = x.data(), o.second = second.data(), o.weight = gain.data(), o.bias = bias.as<float>(), o.y = y.data();
  launch(plan(rocm_sd_kernels_plan_group_norm, p), o);
  {
    const ForcedImpl ref("group_norm", "ref");
    const Tensor want =
        group_norm(ex_, x, {gain, bias}, {.groups = 4, .act = Activation::kSilu, .second = &second});
    expect_near(to_doubles(y), to_doubles(want), reduction_tolerance(dtype, 35 * 8));
  }

  const Tensor rows = random_tensor({11, 32}, dtype, 5), residual = random_tensor({11, 32}, dtype, 6);
  rocm_sd_kernels_layer_norm n{};
  n.size = sizeof(n);
  n.dtype = ROCM_SD_KERNELS_BF16;
  n.rows = 11, n.channels = 32;
  n.eps = 1e-5f;
  n.has_residual = 1;
  o = operands();
  Tensor sum = output({11, 32}, dtype), normed = output({11, 32}, dtype);
  o.x = rows.data(), o.residual = residual.data(), o.weight = gain.data(), o.bias = bias.as<float>();
  o.sum = sum.data(), o.y = normed.data();
  launch(plan(rocm_sd_kernels_plan_layer_norm, n), o);
  {
    const ForcedImpl ref("layer_norm", "ref");
    expect_near(to_doubles(sum), to_doubles(add(ex_, rows, residual)), reduction_tolerance(dtype, 2));
    expect_near(to_doubles(normed), to_doubles(layer_norm(ex_, sum, {gain, bias})),
                reduction_tolerance(dtype, 32));
  }

  rocm_sd_kernels_geglu g{};
  g.size = sizeof(g);
  g.dtype = ROCM_SD_KERNELS_BF16;
  g.rows = 11, g.channels = 16;
  o = operands();
  Tensor half = output({11, 16}, dtype);
  o.x = rows.data(), o.y = half.data();
  launch(plan(rocm_sd_kernels_plan_geglu, g), o);
  expect_near(to_doubles(half), to_doubles(geglu(ex_, rows)), reduction_tolerance(dtype, 2));
}

TEST_F(KernelsCApi, RefusesWithASentence) {
  rocm_sd_kernels_plan* out = nullptr;
  const auto refused = [&](const rocm_sd_kernels_attention& p, rocm_sd_kernels_status status,
                           const char* text) {
    EXPECT_EQ(rocm_sd_kernels_plan_attention(context_, &p, &out), status) << rocm_sd_kernels_last_error();
    EXPECT_EQ(out, nullptr);
    EXPECT_NE(std::string(rocm_sd_kernels_last_error()).find(text), std::string::npos)
        << rocm_sd_kernels_last_error();
  };
  auto p = attention_desc(ROCM_SD_KERNELS_F32);
  p.size = 4;
  refused(p, ROCM_SD_KERNELS_INVALID, "size");
  p = attention_desc(static_cast<rocm_sd_kernels_dtype>(9));
  refused(p, ROCM_SD_KERNELS_INVALID, "dtype 9");
  p = attention_desc(ROCM_SD_KERNELS_F32);
  p.heads = 0;
  refused(p, ROCM_SD_KERNELS_INVALID, "heads is 0");
  p = attention_desc(ROCM_SD_KERNELS_F32);
  p.batch = INT64_MAX;
  refused(p, ROCM_SD_KERNELS_INVALID, "batch");
  p = attention_desc(ROCM_SD_KERNELS_F32);
  p.queries = p.keys = p.head_dim = int64_t{1} << 40;
  refused(p, ROCM_SD_KERNELS_INVALID, "larger than any memory");
  p = attention_desc(ROCM_SD_KERNELS_F32);
  p.q = {72 * 21, -24, 72};
  refused(p, ROCM_SD_KERNELS_UNSUPPORTED, "heads");
  p = attention_desc(ROCM_SD_KERNELS_F32);
  p.q = {72 * 21, 24, -72};
  refused(p, ROCM_SD_KERNELS_INVALID, "negative stride");
  EXPECT_EQ(rocm_sd_kernels_plan_attention(nullptr, &p, &out), ROCM_SD_KERNELS_INVALID);
  EXPECT_EQ(rocm_sd_kernels_plan_attention(context_, nullptr, &out), ROCM_SD_KERNELS_INVALID);

  rocm_sd_kernels_context* none = nullptr;
  EXPECT_EQ(rocm_sd_kernels_open("tpu", &none), ROCM_SD_KERNELS_UNSUPPORTED);
  EXPECT_EQ(rocm_sd_kernels_open(nullptr, &none), ROCM_SD_KERNELS_INVALID);
  EXPECT_EQ(none, nullptr);

  rocm_sd_kernels_group_norm g{};
  g.size = sizeof(g);
  g.batch = 1, g.pixels = 4, g.channels = 10, g.groups = 3;
  EXPECT_EQ(rocm_sd_kernels_plan_group_norm(context_, &g, &out), ROCM_SD_KERNELS_INVALID);
  EXPECT_NE(std::string(rocm_sd_kernels_last_error()).find("into 3 groups"), std::string::npos);

  auto o = operands();
  rocm_sd_kernels_plan* plan_of_attention =
      plan(rocm_sd_kernels_plan_attention, attention_desc(ROCM_SD_KERNELS_F32));
  EXPECT_EQ(rocm_sd_kernels_launch(plan_of_attention, &o, nullptr), ROCM_SD_KERNELS_INVALID);
  EXPECT_NE(std::string(rocm_sd_kernels_last_error()).find("q is NULL"), std::string::npos);
}

// A program built for a later header may pass longer structs, as long as it does not use what is new; one
// built for an earlier header passes shorter ones.
TEST_F(KernelsCApi, StructsOfOtherVersions) {
  struct Longer {
    rocm_sd_kernels_geglu known;
    int64_t future;
  } longer{};
  longer.known.size = sizeof(longer);
  longer.known.rows = longer.known.channels = 4;
  rocm_sd_kernels_plan* out = nullptr;
  EXPECT_EQ(rocm_sd_kernels_plan_geglu(context_, &longer.known, &out), ROCM_SD_KERNELS_OK);
  rocm_sd_kernels_plan_free(out);
  longer.future = 1;
  EXPECT_EQ(rocm_sd_kernels_plan_geglu(context_, &longer.known, &out), ROCM_SD_KERNELS_INVALID);
  EXPECT_NE(std::string(rocm_sd_kernels_last_error()).find("does not know"), std::string::npos);

  rocm_sd_kernels_plan* attended = plan(rocm_sd_kernels_plan_attention, attention_desc(ROCM_SD_KERNELS_F32));
  rocm_sd_kernels_plan_info info{};
  info.size = offsetof(rocm_sd_kernels_plan_info, launches);
  info.launches = -1;
  EXPECT_EQ(rocm_sd_kernels_inspect(attended, &info), ROCM_SD_KERNELS_OK);
  EXPECT_EQ(info.launches, -1);  // not part of the caller's struct
  EXPECT_NE(std::string(rocm_sd_kernels_explain(attended)).find("attention f32"), std::string::npos);
  rocm_sd_kernels_device device{};
  device.size = sizeof(device);
  EXPECT_EQ(rocm_sd_kernels_describe(context_, &device), ROCM_SD_KERNELS_OK);
  EXPECT_EQ(device.kind, ROCM_SD_KERNELS_ON_HOST);
  EXPECT_GE(device.compute_units, 1);
}

}  // namespace
}  // namespace rocm_sd
