// The GPU's convolution without a GPU: the host's side as it is (layouts, workspace, splits, launches), on a
// device whose kernels are the portable bodies, run by one lane (Arch = Scalar).
#include "kernels/conv/conv2d_gpu.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "composable_kernels/arch/scalar.hpp"
#include "composable_kernels/arch/winograd_scalar.hpp"
#include "composable_kernels/families/rdna3.hpp"
#include "composable_kernels/fused/conv_layout.hpp"
#include "composable_kernels/fused/convolution.hpp"
#include "composable_kernels/fused/winograd.hpp"
#include "kernels/conv/conv2d_winograd_gpu.hpp"
#include "support/conv2d_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

// A GpuDevice in host memory: kernels by name, each a loop over the grid.
class ScalarGpu final : public GpuDevice {
 public:
  using Run = std::function<void(const void* params, int x, int y, int z)>;

  ScalarGpu() {
    traits_.arch = "scalar";
    traits_.family = GpuFamily::kRdna3;
    traits_.lanes = 1;
    traits_.compute_units = 8;
    add_type<Half, Rdna3Family::kConv>("f16");
    add_type<Bf16, Rdna3Family::kConv>("bf16");
    add_type<float, Rdna3Family::kConvF32>("f32");
    add_winograd();
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
    const auto gx = static_cast<int>(grid.x), gy = static_cast<int>(grid.y), gz = static_cast<int>(grid.z);
#pragma omp parallel for collapse(3) schedule(dynamic)
    for (int z = 0; z < gz; ++z)
      for (int y = 0; y < gy; ++y)
        for (int x = 0; x < gx; ++x) run(params, x, y, z);
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
    add("conv_" + type + "_" + describe(GemmConfig{kShape, 1}), [](const void* params, int x, int y, int z) {
      std::vector<Vec8<Half>> lds((Cfg::kLdsBytes + 15) / 16);
      conv_body<Scalar, Cfg>(*static_cast<const ConvParams<T>*>(params), x, y, z,
                             reinterpret_cast<char*>(lds.data()));
    });
  }
  void add_winograd() {
    constexpr WinogradShape kShape = winograd_shape("rdna3"), kOne{kShape.tiles, kShape.channels, 1};
    using Cfg = WinogradCfg<kOne>;
    add("conv_winograd_f16", [](const void* params, int x, int, int) {
      std::vector<Vec8<Half>> lds((Cfg::kLdsBytes + 15) / 16);
      const auto& p = *static_cast<const WinogradParams*>(params);
      winograd_body<Scalar, Cfg>(p, x, reinterpret_cast<char*>(lds.data()),
                                 [&]() -> const auto& { return p; });
    });
    add_small<WinogradFilterParams>("conv_winograd_filter_f16",
                                    [](const auto& p, int64_t i) { winograd_filter_body(p, i); });
  }
  template <class Params, class Body>
  void add_small(const std::string& name, Body body) {
    add(name, [body](const void* params, int x, int, int) {
      for (int i = 0; i < kConvSmallThreads; ++i)
        body(*static_cast<const Params*>(params), int64_t{x} * kConvSmallThreads + i);
    });
  }
  template <class T>
  void add_layouts(const std::string& type) {
    add_small<FilterParams<T>>("conv_pack_" + type, [](const auto& p, int64_t i) { conv_pack_body(p, i); });
    add_small<FilterParams<T>>("conv_unpack_" + type,
                               [](const auto& p, int64_t i) { conv_unpack_body(p, i); });
    add_small<FilterParams<T>>("conv_phases_" + type,
                               [](const auto& p, int64_t i) { conv_phases_body(p, i); });
    add_small<PadParams<T>>("conv_pad_" + type, [](const auto& p, int64_t i) { conv_pad_body(p, i); });
    add_small<GemmReduceParams<T>>("conv_reduce_" + type,
                                   [](const auto& p, int64_t i) { gemm_reduce_body<Scalar, T>(p, i); });
  }
  // Every configuration of a family's table.
  template <class T, const auto& kTable, size_t... row>
  void add_table(const std::string& type, std::index_sequence<row...>) {
    (add_config<T, kTable[row].shape>(type), ...);
  }
  template <class T, const auto& kTable>
  void add_type(const std::string& type) {
    add_layouts<T>(type);
    add_table<T, kTable>(type, std::make_index_sequence<kTable.size()>());
  }

  GpuTraits traits_;
  PoisonedDevice memory_;
  std::map<std::string, std::pair<GpuKernel, Run>> kernels_;
};

class Conv2dGpuTest : public testing::TestWithParam<DType> {};

// The operands lie in host memory on either device, so that the reference reads what the kernels read.
TEST_P(Conv2dGpuTest, MatchesTheReference) {
  const DType dtype = GetParam();
  ScalarGpu gpu;
  uint64_t seed = 1;
  for (const ConvCase& c : conv_cases()) {
    const ConvOperands operands(gpu, c, dtype, seed += 11);
    const ConvArgs args = operands.args(c);
    TestExec host;
    Arena arena(gpu);
    Exec ex(arena);
    const ConvWeight reference = operands.conv_weight(gpu, c), w = operands.conv_weight(gpu, c);
    const Tensor want = reference_conv2d(host.ex, operands.x, reference, args);
    const Tensor y = ex.alloc(want.shape(), dtype);
    const ConvProblem problem{operands.x, w, args, y};
    ASSERT_FALSE(conv2d_supports_gpu(ex, problem));
    ConvChoice choice = conv_default(gpu.traits(), conv_extent(problem));
    if (c.splits) choice.splits = c.splits;
    conv2d_gpu_by(ex, problem, choice);
    expect_tensor_near(y, to_doubles(want), conv_tolerance(problem), describe(c, choice));
  }
}

TEST_P(Conv2dGpuTest, EveryConfigurationMatchesTheReference) {
  const DType dtype = GetParam();
  ScalarGpu gpu;
  for (const ConvCase& c :
       {ConvCase{{2, 11, 13, 40}, 16, 168, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{{1, 9, 20, 64}, 0, 44, 3, 2, Padding{0, 0, 1, 1}},
        ConvCase{{2, 7, 9, 40}, 0, 20, 3, 1, Padding::same(1), true}}) {
    const ConvOperands operands(gpu, c, dtype, 3);
    const ConvArgs args = operands.args(c);
    TestExec host;
    const ConvWeight reference = operands.conv_weight(gpu, c), w = operands.conv_weight(gpu, c);
    const Tensor want = reference_conv2d(host.ex, operands.x, reference, args);
    for (const GemmConfig& config : conv_configs_of(gpu.traits(), dtype))
      for (const int splits : {1, 3}) {
        Arena arena(gpu);
        Exec ex(arena);
        const Tensor y = ex.alloc(want.shape(), dtype);
        const ConvChoice choice{config, splits};
        const ConvProblem problem{operands.x, w, args, y};
        conv2d_gpu_by(ex, problem, choice);
        expect_tensor_near(y, to_doubles(want), conv_tolerance(problem), describe(c, choice));
      }
  }
}

TEST_P(Conv2dGpuTest, HoldsFiltersOnceAndGivesThemBack) {
  const DType dtype = GetParam();
  ScalarGpu gpu;
  for (const auto& [first, second] : {std::pair<int64_t, int64_t>{64, 0}, {40, 24}, {5, 0}, {9, 3}}) {
    const ConvCase c{{1, 6, 6, first}, second, 24};
    const ConvOperands operands(gpu, c, dtype, 6);
    const ConvWeight w = operands.conv_weight(gpu, c);
    Arena arena(gpu);
    Exec ex(arena);
    const ForcedImpl only("conv2d", "gpu");
    (void)conv2d(ex, operands.x, w, operands.args(c));
    const int64_t padded = conv_padded_channels(first, dtype) + conv_padded_channels(second, dtype);
    EXPECT_EQ(w.weight.stored_bytes(), static_cast<size_t>(24 * 9 * padded) * dtype_size(dtype));
    EXPECT_EQ(to_doubles(w.weight.plain()), to_doubles(operands.weight)) << first << "+" << second;
  }
}

TEST_P(Conv2dGpuTest, ReplaysTheSameBitsFromThePlannedArena) {
  const DType dtype = GetParam();
  ScalarGpu gpu;
  const ConvCase c{{2, 8, 8, 36}, 12, 48, 3, 1, Padding::same(1), false, true, true, true};
  const ConvOperands operands(gpu, c, dtype, 5);
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

// Tails of tiles, channels and outputs; uneven padding; all of an epilogue. Three roundings of values with
// 25/9 of the sum's variance, 4 deviations wide.
TEST(Conv2dGpu, WinogradMatchesTheReference) {
  ScalarGpu gpu;
  uint64_t seed = 4;
  for (const ConvCase& c :
       {ConvCase{{2, 11, 13, 40}, 0, 72, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{
            {1, 6, 5, 22}, 0, 13, 3, 1, Padding{2, 0, 1, 3}, false, false, false, true, Activation::kSilu},
        ConvCase{{3, 4, 9, 64}, 0, 64, 3, 1, Padding{}, false, true, true}}) {
    const ConvOperands operands(gpu, c, DType::kF16, ++seed);
    const ConvArgs args = operands.args(c);
    TestExec host;
    Arena arena(gpu);
    Exec ex(arena);
    const ConvWeight reference = operands.conv_weight(gpu, c), w = operands.conv_weight(gpu, c);
    const Tensor want = reference_conv2d(host.ex, operands.x, reference, args);
    const Tensor y = ex.alloc(want.shape(), DType::kF16);
    const ConvProblem problem{operands.x, w, args, y};
    ASSERT_FALSE(conv2d_refuses_winograd(ex, problem));
    conv2d_winograd_gpu(ex, problem);
    const double again = 4 * std::sqrt(3 * 25.0 / 9) * unit_roundoff(DType::kF16);
    expect_tensor_near(y, to_doubles(want), conv_tolerance(problem) + again, describe(c));
  }
}

// Where the estimate says that it is faster by a clear margin, on cards with memory for two filters.
TEST(Conv2dGpu, PrefersWinogradWhereItFillsTheCard) {
  ScalarGpu gpu;  // 8 compute units
  Arena arena(gpu);
  Exec ex(arena);
  const auto prefers = [&](const ConvCase& c) {
    const ConvOperands operands(gpu, c, DType::kF16, 2);
    const ConvWeight w = operands.conv_weight(gpu, c);
    const ConvArgs args = operands.args(c);
    const Tensor y = ex.alloc(output_of(c), DType::kF16);
    return conv2d_prefers_winograd(ex, ConvProblem{operands.x, w, args, y});
  };
  const bool has_memory = gpu.memory().total >= uint64_t{15} << 30;
  EXPECT_EQ(prefers({{1, 32, 32, 256}, 0, 64}), has_memory);
  EXPECT_FALSE(prefers({{1, 8, 8, 256}, 0, 64}));  // one workgroup
  EXPECT_FALSE(
      prefers({{1, 32, 32, 8}, 0, 64}));  // few channels: what a workgroup does outside its loop decides
}

TEST(Conv2dGpu, ChoosesSplitsForSmallMapsOnly) {
  GpuTraits h200;
  h200.family = GpuFamily::kNvidia;
  h200.compute_units = 132;
  const ConvExtent small{128, 1280, 11520, DType::kF16}, large{262144, 128, 1152, DType::kF16};
  EXPECT_GT(conv_default(h200, small).splits, 4);
  EXPECT_EQ(conv_default(h200, large).splits, 1);
  EXPECT_EQ(conv_default(h200, {4096, 4, 2880, DType::kF16}).config.shape.block_n, 16);
}

TEST(Conv2dGpu, RefusesWhatItCannotCount) {
  ScalarGpu gpu;
  Arena arena(gpu);
  Exec ex(arena);
  const ConvCase c{{1, 20, 20, 3}, 0, 16, 15, 1, Padding{}};
  const ConvOperands operands(gpu, c, DType::kF16, 1);
  const ConvWeight w = operands.conv_weight(gpu, c);
  const ForcedImpl only("conv2d", "gpu");
  EXPECT_THROW((void)conv2d(ex, operands.x, w), UsageError);
  TestExec host;
  EXPECT_THROW((void)conv2d(host.ex, operands.x, w), UsageError);
}

TEST(Conv2dGpu, CpuRowsRefuseMemoryOfAGpu) {
  ScalarGpu gpu;
  Arena arena(gpu);
  Exec ex(arena);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const ConvCase c{{1, 6, 6, 8}, 0, 8};
    const ConvOperands operands(gpu, c, dtype, 1);
    const ConvWeight w = operands.conv_weight(gpu, c);
    for (const char* impl : {"ref", "tiled", "onednn", "winograd"}) {
      const ForcedImpl only("conv2d", impl);
      EXPECT_THROW((void)conv2d(ex, operands.x, w, operands.args(c)), UsageError)
          << impl << " " << dtype_name(dtype);
    }
  }
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
