// The GPU's convolution without a GPU: the host's side as it is (layouts, workspace, splits, launches), on a
// device whose kernels are the portable bodies, run by one lane (Arch = Scalar).
#include "kernels/conv/conv2d_gpu.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "composable_kernels/arch/scalar.hpp"
#include "composable_kernels/fused/conv_layout.hpp"
#include "composable_kernels/fused/convolution.hpp"
#include "unit_tests/kernels/product_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

// A GpuDevice in host memory: kernels by name, each a loop over the grid.
class ScalarGpu final : public GpuDevice {
 public:
  using Run = std::function<void(const void* params, int x, int y)>;

  ScalarGpu() {
    traits_.arch = "scalar";
    traits_.family = GpuFamily::kRdna3;
    traits_.lanes = 1;
    traits_.multiprocessors = 8;
    add_type<Half>("f16");
    add_type<Bf16>("bf16");
    add_float();
  }
  DeviceKind kind() const override { return DeviceKind::kEmulator; }
  std::string name() const override { return "one lane"; }
  MemoryInfo memory() const override { return host_device().memory(); }
  void* allocate(size_t bytes) override { return memory_.allocate(bytes); }
  void free(void* data, size_t bytes) noexcept override { memory_.free(data, bytes); }
  void copy_to_device(void* dst, const void* src, size_t n) override { memory_.copy_to_device(dst, src, n); }
  void copy_to_host(void* dst, const void* src, size_t n) override { memory_.copy_to_host(dst, src, n); }
  void copy_on_device(void* dst, const void* src, size_t n) override { memory_.copy_on_device(dst, src, n); }
  void synchronize() override {}
  DType preferred_dtype() const override { return DType::kF16; }
  const GpuTraits& traits() const override { return traits_; }
  const GpuKernel* find_kernel(std::string_view name) override {
    const auto found = kernels_.find(std::string(name));
    return found == kernels_.end() ? nullptr : &found->second.first;
  }
  void launch(const GpuKernel& kernel, GpuGrid grid, uint32_t, uint32_t, const void* params,
              size_t) override {
    const Run& run = kernels_.at(kernel.name).second;
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64_t y = 0; y < static_cast<int64_t>(grid.y); ++y)
      for (int64_t x = 0; x < static_cast<int64_t>(grid.x); ++x)
        run(params, static_cast<int>(x), static_cast<int>(y));
  }
  void fill_zero(void* data, size_t bytes) override { std::memset(data, 0, bytes); }
  void begin_capture() override {}
  std::unique_ptr<GpuGraph> end_capture() override { return nullptr; }
  std::unique_ptr<GpuEvent> make_event() override { return nullptr; }

 private:
  void add(const std::string& name, Run run) { kernels_[name] = {GpuKernel{name, nullptr}, std::move(run)}; }

  // kShape with one wave: the scalar workgroup is one lane.
  template <class T, TileShape kShape>
  void add_config(const std::string& type) {
    constexpr TileShape kOne{kShape.block_m, kShape.block_n, kShape.block_k, 1, 1, 2};
    using Cfg = ProductCfg<T, kOne>;
    add("conv_" + type + "_" + ConvConfig{kShape, 1}.suffix(), [](const void* params, int x, int y) {
      std::vector<Vec8<Half>> lds((Cfg::kLdsBytes + 15) / 16);
      conv_body<Scalar, Cfg>(*static_cast<const ConvParams<T>*>(params), x, y,
                             reinterpret_cast<char*>(lds.data()));
    });
  }
  template <class Params, class Body>
  void add_small(const std::string& name, Body body) {
    add(name, [body](const void* params, int x, int) {
      for (int i = 0; i < kConvSmallThreads; ++i)
        body(*static_cast<const Params*>(params), int64_t{x} * kConvSmallThreads + i);
    });
  }
  template <class T>
  void add_layouts(const std::string& type) {
    add_small<FilterParams<T>>("conv_pack_" + type, [](const auto& p, int64_t i) { conv_pack_body(p, i); });
    add_small<FilterParams<T>>("conv_unpack_" + type,
                               [](const auto& p, int64_t i) { conv_unpack_body(p, i); });
    add_small<PadParams<T>>("conv_pad_" + type, [](const auto& p, int64_t i) { conv_pad_body(p, i); });
    add_small<GemmReduceParams<T>>("conv_reduce_" + type,
                                   [](const auto& p, int64_t i) { gemm_reduce_body<Scalar, T>(p, i); });
  }
  template <class T>
  void add_type(const std::string& type) {
    add_layouts<T>(type);
#define ADD(m, n, k, waves_m, waves_n, stages, groups) \
  add_config<T, TileShape{m, n, k, waves_m, waves_n, stages}>(type);
    ROCM_SD_CONV_CONFIGS_RDNA(ADD)
  }
  void add_float() {
    using T = float;
    const std::string type = "f32";
    add_layouts<T>(type);
    ROCM_SD_CONV_CONFIGS_F32(ADD)
#undef ADD
  }

  GpuTraits traits_;
  PoisonedDevice memory_;
  std::map<std::string, std::pair<GpuKernel, Run>> kernels_;
};

struct Case {
  Shape x;  // [N,H,W,C]
  int64_t second = 0, out = 1, filter = 3;
  int stride = 1;
  Padding pad = Padding::same(1);
  bool upsample2x = false, bias = true, shift = false, residual = false;
  Activation act = Activation::kNone;
  int splits = 0;  // 0: the default choice
};

std::string describe(const Case& c, const ConvChoice& choice) {
  return fmt::format("{}+{}->{} {}x{} s{} p{},{} up {} shift {} residual {} act {} by {}/{}", c.x, c.second,
                     c.out, c.filter, c.filter, c.stride, c.pad.top, c.pad.left, c.upsample2x, c.shift,
                     c.residual, activation_name(c.act), choice.config.suffix(), choice.splits);
}

Tensor moved(Device& device, const Tensor& t) {
  Tensor out = make_tensor(device, t.shape(), t.dtype());
  device.copy_to_device(out.data(), t.data(), t.bytes());
  return out;
}

struct Operands {
  Tensor x, second, weight, bias, shift, residual;
  Operands(Device& device, const Case& c, DType dtype, uint64_t seed) {
    const int64_t channels = c.x[3] + c.second, scale = c.upsample2x ? 2 : 1;
    const Shape y{c.x[0], (scale * c.x[1] + c.pad.top + c.pad.bottom - c.filter) / c.stride + 1,
                  (scale * c.x[2] + c.pad.left + c.pad.right - c.filter) / c.stride + 1, c.out};
    const float deviation = 1 / std::sqrt(static_cast<float>(channels * c.filter * c.filter));
    x = moved(device, random_tensor(c.x, dtype, seed));
    if (c.second) second = moved(device, random_tensor({c.x[0], c.x[1], c.x[2], c.second}, dtype, seed + 1));
    weight = moved(device, random_tensor({c.out, channels, c.filter, c.filter}, dtype, seed + 2, deviation));
    bias = moved(device, random_tensor({c.out}, DType::kF32, seed + 3));
    shift = moved(device, random_tensor({c.x[0], c.out + 5}, seed % 2 ? DType::kF32 : dtype, seed + 4))
                .narrow(1, 2, c.out);
    residual = moved(device, random_tensor(y, dtype, seed + 5));
  }
  ConvWeight conv_weight(Device& device, const Case& c) const {
    ConvWeight w{Weight(moved(device, weight)), std::nullopt};
    if (c.bias) w.bias = bias;
    return w;
  }
  ConvArgs args(const Case& c) const {
    return {.stride = c.stride,
            .pad = c.pad,
            .upsample2x = c.upsample2x,
            .second = c.second ? &second : nullptr,
            .epilogue = {.channel_shift = c.shift ? &shift : nullptr,
                         .residual = c.residual ? &residual : nullptr,
                         .act = c.act}};
  }
};

std::vector<Case> cases() {
  const Padding none, lower{0, 0, 1, 1};
  std::vector<Case> out = {
      {{1, 1, 1, 1}, 0, 1, 1, 1, none},
      {{1, 1, 1, 3}, 0, 4, 3},
      {{2, 5, 7, 4}, 0, 32, 3},
      {{2, 8, 8, 9}, 0, 13, 3, 1, Padding::same(1), false, true, true},
      {{1, 9, 6, 8}, 0, 8, 3, 2},
      {{1, 8, 8, 16}, 0, 24, 3, 2, lower},
      {{2, 7, 5, 64}, 0, 3, 3},
      {{3, 6, 6, 40}, 24, 48, 3, 1, Padding::same(1), false, true, true, true},
      {{2, 4, 4, 64}, 32, 40, 1, 1, none, false, true, false, false, Activation::kSilu},
      {{1, 5, 4, 16}, 0, 20, 3, 1, Padding::same(1), true},
      {{2, 6, 7, 32}, 0, 33, 3, 1, Padding::same(1), true, true, true, true},
      {{1, 5, 4, 6}, 3, 20, 3, 1, Padding::same(1), true, false},
      {{1, 3, 4, 5}, 0, 7, 3, 2, Padding{2, 1, 0, 1}, true},
      {{1, 14, 14, 3}, 0, 16, 14, 14, none, false, false},
      {{2, 8, 8, 128}, 64, 72, 3, 1, Padding::same(1), false, true, true, true, Activation::kSilu, 5},
      {{2, 8, 8, 64}, 0, 4, 3, 1, Padding::same(1), false, true, false, true, Activation::kGelu, 2},
      {{1, 9, 7, 40}, 24, 13, 3, 1, Padding::same(1), false, true, true, true, Activation::kRelu, 3},
      {{1, 16, 16, 32}, 0, 160, 1, 1, none, false, true, false, true, Activation::kQuickGelu},
  };
  std::mt19937 random(12);
  const auto pick = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int i = 0; i < 20; ++i) {
    Case c{{pick(3), pick(12), pick(12), pick(70)}};
    if (random() % 3 == 0) c.second = pick(40);
    c.out = pick(80);
    c.filter = random() % 3 == 0 ? 1 : 3;
    c.stride = static_cast<int>(pick(2));
    c.pad = {static_cast<int>(random() % 3), static_cast<int>(random() % 3), 2, 2};
    c.upsample2x = random() % 4 == 0;
    c.bias = random() % 2 == 0;
    c.shift = random() % 2 == 0;
    c.residual = random() % 2 == 0;
    c.act = static_cast<Activation>(random() % 5);
    c.splits = static_cast<int>(random() % 4);
    out.push_back(c);
  }
  return out;
}

class Conv2dGpuTest : public testing::TestWithParam<DType> {};

// The operands lie in host memory on either device, so that the reference reads what the kernels read.
TEST_P(Conv2dGpuTest, MatchesTheReference) {
  const DType dtype = GetParam();
  ScalarGpu gpu;
  uint64_t seed = 1;
  for (const Case& c : cases()) {
    const Operands operands(gpu, c, dtype, seed += 11);
    const ConvArgs args = operands.args(c);
    TestExec host;
    Arena arena(gpu);
    Exec ex(arena);
    const ConvWeight reference = operands.conv_weight(gpu, c), w = operands.conv_weight(gpu, c);
    std::string refusal;
    const auto want =
        under("conv2d", "ref", [&] { return conv2d(host.ex, operands.x, reference, args); }, &refusal);
    ASSERT_TRUE(want) << refusal;
    const Tensor y = ex.alloc(want->shape(), dtype);
    const ConvProblem problem{operands.x, w, args, y};
    ASSERT_FALSE(conv2d_supports_gpu(ex, problem));
    ConvChoice choice = conv_default(gpu.traits(), conv_extent(problem));
    if (c.splits) choice.splits = c.splits;
    conv2d_gpu_by(ex, problem, choice);
    const int64_t length = (c.x[3] + c.second) * c.filter * c.filter;
    expect_tensor_near(y, to_doubles(*want), reduction_tolerance(dtype, length), describe(c, choice));
  }
}

TEST_P(Conv2dGpuTest, EveryConfigurationMatchesTheReference) {
  const DType dtype = GetParam();
  ScalarGpu gpu;
  for (const Case& c : {Case{{2, 11, 13, 40}, 16, 168, 3, 1, Padding::same(1), false, true, true, true},
                        Case{{1, 9, 20, 64}, 0, 44, 3, 2, Padding{0, 0, 1, 1}}}) {
    const Operands operands(gpu, c, dtype, 3);
    const ConvArgs args = operands.args(c);
    TestExec host;
    const ConvWeight reference = operands.conv_weight(gpu, c), w = operands.conv_weight(gpu, c);
    std::string refusal;
    const auto want =
        under("conv2d", "ref", [&] { return conv2d(host.ex, operands.x, reference, args); }, &refusal);
    ASSERT_TRUE(want) << refusal;
    for (const ConvConfig& config : conv_configs_of(GpuFamily::kRdna3, dtype))
      for (const int splits : {1, 3}) {
        Arena arena(gpu);
        Exec ex(arena);
        const Tensor y = ex.alloc(want->shape(), dtype);
        const ConvChoice choice{config, splits};
        conv2d_gpu_by(ex, {operands.x, w, args, y}, choice);
        expect_tensor_near(y, to_doubles(*want), reduction_tolerance(dtype, (c.x[3] + c.second) * 9),
                           describe(c, choice));
      }
  }
}

TEST_P(Conv2dGpuTest, HoldsFiltersOnceAndGivesThemBack) {
  const DType dtype = GetParam();
  ScalarGpu gpu;
  for (const auto& [first, second] : {std::pair<int64_t, int64_t>{64, 0}, {40, 24}, {5, 0}, {9, 3}}) {
    const Case c{{1, 6, 6, first}, second, 24};
    const Operands operands(gpu, c, dtype, 6);
    const ConvWeight w = operands.conv_weight(gpu, c);
    Arena arena(gpu);
    Exec ex(arena);
    const ForcedImpl only("conv2d", "gpu");
    (void)conv2d(ex, operands.x, w, operands.args(c));
    const int64_t padded = conv_padded_channels(first, dtype) + conv_padded_channels(second, dtype);
    EXPECT_EQ(w.weight.bytes_held(), static_cast<size_t>(24 * 9 * padded) * dtype_size(dtype));
    EXPECT_EQ(to_doubles(w.weight.plain()), to_doubles(operands.weight)) << first << "+" << second;
  }
}

TEST_P(Conv2dGpuTest, ReplaysTheSameBitsFromThePlannedArena) {
  const DType dtype = GetParam();
  ScalarGpu gpu;
  const Case c{{2, 8, 8, 36}, 12, 48, 3, 1, Padding::same(1), false, true, true, true};
  const Operands operands(gpu, c, dtype, 5);
  const ConvWeight w = operands.conv_weight(gpu, c);
  Arena arena(gpu);
  std::vector<char> result;
  Program program("conv2d", arena, [&](Exec& ex) {
    const ForcedImpl only("conv2d", "gpu");
    const Tensor y = conv2d(ex, operands.x, w, operands.args(c));
    if (!ex.planning())
      ex.launch({"look"}, [&result, data = static_cast<const char*>(y.data()), n = y.bytes()] {
        result.assign(data, data + n);
      });
  });
  program.run();
  const std::vector<char> first = result;
  ASSERT_FALSE(first.empty());
  result.clear();
  program.run();
  EXPECT_EQ(first, result);
  EXPECT_LE(arena.used_peak(), program.arena_bytes());
}

INSTANTIATE_TEST_SUITE_P(All, Conv2dGpuTest, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(Conv2dGpu, ChoosesSplitsForSmallMapsOnly) {
  GpuTraits h200;
  h200.family = GpuFamily::kNvidia;
  h200.multiprocessors = 132;
  const ConvExtent small{128, 1280, 11520, DType::kF16}, large{262144, 128, 1152, DType::kF16};
  EXPECT_GT(conv_default(h200, small).splits, 4);
  EXPECT_EQ(conv_default(h200, large).splits, 1);
  EXPECT_EQ(conv_default(h200, {4096, 4, 2880, DType::kF16}).config.shape.block_n, 16);
}

TEST(Conv2dGpu, RefusesWhatItCannotCount) {
  ScalarGpu gpu;
  Arena arena(gpu);
  Exec ex(arena);
  const Case c{{1, 20, 20, 3}, 0, 16, 15, 1, Padding{}};
  const Operands operands(gpu, c, DType::kF16, 1);
  const ConvWeight w = operands.conv_weight(gpu, c);
  const ForcedImpl only("conv2d", "gpu");
  EXPECT_THROW((void)conv2d(ex, operands.x, w), UsageError);
  TestExec host;
  EXPECT_THROW((void)conv2d(host.ex, operands.x, w), UsageError);
}

// Quotients at the ends of the range and around every multiple near them.
TEST(FastDivide, EqualsDivision) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto d = static_cast<int32_t>(i < 400 ? i + 1 : 1 + random() % 0x7fffffffu);
    const FastDivide divide = fast_divide(d);
    for (const int64_t near :
         {int64_t{0}, int64_t{d}, static_cast<int64_t>(random() % 0x80000000u), int64_t{0x7fffffff}})
      for (int64_t x = near / d * d - 1; x <= near / d * d + 1; ++x) {
        if (x < 0 || x > 0x7fffffff) continue;
        ASSERT_EQ(divide.quotient(static_cast<int32_t>(x)), x / d) << x << " / " << d;
      }
    ASSERT_EQ(divide.quotient(0x7fffffff), 0x7fffffff / d) << d;
  }
}

}  // namespace
}  // namespace rocm_sd
