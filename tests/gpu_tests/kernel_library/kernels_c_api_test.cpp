// The C interface on a GPU: each op on memory of the library's own allocator, against the references; twice
// over one plan, with the workspace poisoned.
#include <cstring>

#include "gpu_tests/gpu_test.hpp"
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

using namespace testing_support;

class KernelsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    test_gpu();  // fails the program where there is none
    const char* named = std::getenv("ROCM_SD_TEST_DEVICE");
    check(rocm_sd_kernels_open(named ? named : "auto", &context_));
  }
  void TearDown() override {
    for (const auto& [data, bytes] : blocks_) rocm_sd_kernels_deallocate(context_, data, bytes);
    rocm_sd_kernels_close(context_);
  }
  static void check(rocm_sd_kernels_status status) {
    ASSERT_EQ(status, ROCM_SD_KERNELS_OK) << rocm_sd_kernels_last_error();
  }

  void* poisoned(size_t bytes) {
    void* data = nullptr;
    check(rocm_sd_kernels_allocate(context_, bytes, &data));
    blocks_.emplace_back(data, bytes);
    const std::vector<unsigned char> poison(bytes, 0xff);
    check(rocm_sd_kernels_copy_to_device(context_, data, poison.data(), bytes));
    return data;
  }
  template <class T = void>
  T* put(const Tensor& host) {
    void* data = poisoned(host.bytes());
    check(rocm_sd_kernels_copy_to_device(context_, data, host.data(), host.bytes()));
    return static_cast<T*>(data);
  }
  std::vector<double> fetch(const void* data, const Shape& shape, DType dtype) {
    const Tensor host = make_tensor(host_device(), shape, dtype);
    check(rocm_sd_kernels_copy_to_host(context_, host.data(), data, host.bytes()));
    return to_doubles(host);
  }
  template <class Desc>
  void run(rocm_sd_kernels_status (*make)(rocm_sd_kernels_context*, const Desc*, rocm_sd_kernels_plan**),
           Desc desc, rocm_sd_kernels_operands o) {
    desc.size = sizeof(desc);
    rocm_sd_kernels_plan* plan = nullptr;
    check(make(context_, &desc, &plan));
    ASSERT_NE(plan, nullptr);
    rocm_sd_kernels_plan_info info{};
    info.size = sizeof(info);
    check(rocm_sd_kernels_inspect(plan, &info));
    EXPECT_GE(info.launches, 1);
    o.size = sizeof(o);
    o.workspace_bytes = info.workspace_bytes;
    o.workspace = info.workspace_bytes ? poisoned(info.workspace_bytes) : nullptr;
    check(rocm_sd_kernels_launch(plan, &o, nullptr));
    check(rocm_sd_kernels_launch(plan, &o, nullptr));
    if (info.prepared_bytes) {
      void* prepared = poisoned(info.prepared_bytes);
      check(rocm_sd_kernels_prepare(plan, o.weight, prepared, nullptr));
      o.prepared = prepared;
      o.weight = nullptr;
      o.workspace_bytes = info.prepared_workspace_bytes;
      check(rocm_sd_kernels_launch(plan, &o, nullptr));
    }
    check(rocm_sd_kernels_synchronize(context_, nullptr));
    rocm_sd_kernels_plan_free(plan);
  }

  Arena arena_{host_device()};
  Exec ex_{arena_};
  rocm_sd_kernels_context* context_ = nullptr;
  std::vector<std::pair<void*, size_t>> blocks_;
};

TEST_F(KernelsOnGpu, Attention) {
  for (const auto& [queries, keys] : {std::pair{130, 77}, {64, 600}}) {  // the second in splits
    const DType dtype = DType::kF16;
    const Tensor q = random_tensor({1, queries, 128}, dtype, 1), k = random_tensor({1, keys, 128}, dtype, 2),
                 v = random_tensor({1, keys, 128}, dtype, 3);
    rocm_sd_kernels_attention p{};
    p.dtype = ROCM_SD_KERNELS_F16;
    p.batch = 1, p.heads = 2, p.queries = queries, p.keys = keys, p.head_dim = 64;
    rocm_sd_kernels_operands o{};
    o.q = put(q), o.k = put(k), o.v = put(v), o.y = poisoned(q.bytes());
    run(rocm_sd_kernels_plan_attention, p, o);
    const ForcedImpl ref("attention", "ref");  // of the host, from here on
    expect_near(fetch(o.y, q.shape(), dtype), to_doubles(attention(ex_, q, k, v, {.heads = 2})),
                4 * reduction_tolerance(dtype, keys + 64));
  }
}

TEST_F(KernelsOnGpu, Linear) {
  const DType dtype = DType::kBF16;
  for (const bool gated : {false, true})
    for (const int64_t rows : {2, 70}) {
      const Tensor x = random_tensor({rows, 320}, dtype, 1), w = random_tensor({128, 320}, dtype, 2, 0.1f),
                   bias = random_tensor({128}, DType::kF32, 3),
                   residual = random_tensor({rows, 128}, dtype, 4);
      rocm_sd_kernels_linear p{};
      p.dtype = ROCM_SD_KERNELS_BF16;
      p.rows = rows, p.in = 320, p.out = gated ? 64 : 128, p.gated = gated, p.has_bias = 1,
      p.has_residual = !gated;
      rocm_sd_kernels_operands o{};
      o.x = put(x), o.weight = put(w), o.bias = put<float>(bias), o.y = poisoned(residual.bytes());
      o.residual = gated ? nullptr : put(residual);
      run(rocm_sd_kernels_plan_linear, p, o);
      const ForcedImpl ref("linear", "ref");  // of the host, from here on
      const LinearWeight weight{Weight(w), bias};
      const Tensor want =
          gated ? linear_geglu(ex_, x, weight) : linear(ex_, x, weight, {.residual = &residual});
      expect_near(fetch(o.y, want.shape(), dtype), to_doubles(want), reduction_tolerance(dtype, 320));
    }
}

TEST_F(KernelsOnGpu, Convolution) {
  const DType dtype = DType::kF16;
  for (const bool doubled : {false, true})
    for (const int64_t channels : {4, 64}) {
      const Tensor x = random_tensor({2, 8, 8, channels}, dtype, 1),
                   w = random_tensor({32, channels, 3, 3}, dtype, 2, 0.1f),
                   bias = random_tensor({32}, DType::kF32, 3);
      rocm_sd_kernels_conv2d p{};
      p.dtype = ROCM_SD_KERNELS_F16;
      p.batch = 2, p.height = p.width = 8, p.channels = channels, p.out_channels = 32,
      p.filter_h = p.filter_w = 3;
      p.pad_top = p.pad_left = p.pad_bottom = p.pad_right = 1;
      p.has_bias = 1;
      p.upsample2x = doubled;
      const Tensor want = [&] {
        const ForcedImpl ref("conv2d", "ref");
        return conv2d(ex_, x, {Weight(w), bias}, {.pad = Padding::same(1), .upsample2x = doubled});
      }();
      rocm_sd_kernels_operands o{};
      o.x = put(x), o.weight = put(w), o.bias = put<float>(bias), o.y = poisoned(want.bytes());
      run(rocm_sd_kernels_plan_conv2d, p, o);
      // Doubled, filter taps that fall together are summed and rounded once.
      expect_near(fetch(o.y, want.shape(), dtype), to_doubles(want),
                  2 * reduction_tolerance(dtype, 9 * channels));
    }
}

TEST_F(KernelsOnGpu, NormsAndGeglu) {
  const DType dtype = DType::kF16;
  const Tensor x = random_tensor({2, 100, 1, 64}, dtype, 1), gain = random_tensor({64}, DType::kF32, 2),
               bias = random_tensor({64}, DType::kF32, 3), residual = random_tensor({200, 64}, dtype, 4);
  rocm_sd_kernels_group_norm g{};
  g.dtype = ROCM_SD_KERNELS_F16;
  g.batch = 2, g.pixels = 100, g.channels = 64, g.groups = 8, g.eps = 1e-5f;
  g.activation = ROCM_SD_KERNELS_SILU;
  rocm_sd_kernels_operands o{};
  o.x = put(x), o.weight = put(gain), o.bias = put<float>(bias), o.y = poisoned(x.bytes());
  run(rocm_sd_kernels_plan_group_norm, g, o);
  {
    const ForcedImpl ref("group_norm", "ref");
    expect_near(fetch(o.y, x.shape(), dtype),
                to_doubles(group_norm(ex_, x, {gain, bias}, {.groups = 8, .act = Activation::kSilu})),
                reduction_tolerance(dtype, 800));
  }
  rocm_sd_kernels_layer_norm n{};
  n.dtype = ROCM_SD_KERNELS_F16;
  n.rows = 200, n.channels = 64, n.eps = 1e-5f, n.has_residual = 1;
  o.residual = put(residual);
  o.sum = poisoned(x.bytes());
  run(rocm_sd_kernels_plan_layer_norm, n, o);
  {
    const ForcedImpl ref("layer_norm", "ref");
    const Tensor sum = add(ex_, x.reshape({200, 64}), residual);
    expect_near(fetch(o.sum, {200, 64}, dtype), to_doubles(sum), reduction_tolerance(dtype, 2));
    expect_near(fetch(o.y, {200, 64}, dtype), to_doubles(layer_norm(ex_, sum, {gain, bias})),
                2 * reduction_tolerance(dtype, 64));
  }
  rocm_sd_kernels_geglu e{};
  e.dtype = ROCM_SD_KERNELS_F16;
  e.rows = 200, e.channels = 32;
  rocm_sd_kernels_operands halves{};
  halves.x = o.x;
  halves.y = poisoned(x.bytes() / 2);
  run(rocm_sd_kernels_plan_geglu, e, halves);
  expect_near(fetch(halves.y, {200, 32}, dtype), to_doubles(geglu(ex_, x.reshape({200, 64}))),
              reduction_tolerance(dtype, 4));
}

// What the runtime says is current is what an opened device is, where a runtime has something current.
TEST_F(KernelsOnGpu, OpensWhatIsCurrent) {
  rocm_sd_kernels_device here{};
  here.size = sizeof(here);
  check(rocm_sd_kernels_describe(context_, &here));
  if (here.kind != ROCM_SD_KERNELS_ON_CUDA && here.kind != ROCM_SD_KERNELS_ON_HIP)
    return;                    // nothing is current
  test_gpu().find_kernel("");  // makes the device current for this thread
  rocm_sd_kernels_context* current = nullptr;
  check(
      rocm_sd_kernels_open(here.kind == ROCM_SD_KERNELS_ON_CUDA ? "cuda:current" : "hip:current", &current));
  rocm_sd_kernels_device device{};
  device.size = sizeof(device);
  check(rocm_sd_kernels_describe(current, &device));
  EXPECT_STREQ(device.name, here.name);
  rocm_sd_kernels_close(current);
}

}  // namespace
}  // namespace rocm_sd
