// attention over keys in two parts, as queries of divided rows attend: against the reference over all of
// them.
#include <gmock/gmock.h>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"
#include "kernels/attention/attention.hpp"
#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  int64_t batch, queries, first, second, head_dim;
  int heads;
  float scale = 0;
  float second_spread = 1;  // of the second part's keys, of which most weight then is
};

class GpuAttentionPartsTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, GpuAttentionPartsTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return fmt::format("{}", info.param); });

// Keys and values of a part are two halves of one tensor, as an exchange brings them.
void check(const Case& c, DType dtype) {
  const int64_t width = c.heads * c.head_dim, keys = c.first + c.second;
  const Tensor q = random_tensor({c.batch, c.queries, width}, dtype, 1);
  const Tensor all = random_tensor({c.batch, keys, 2 * width}, dtype, 2);
  std::vector<float> values = to_floats(host_device(), all);
  for (int64_t row = 0; row < c.batch * keys; ++row)
    for (int64_t i = 0; i < width; ++i)
      if (row % keys >= c.first) values[static_cast<size_t>(row * 2 * width + i)] *= c.second_spread;
  const Tensor packed = tensor_from(host_device(), all.shape(), values.data(), dtype);
  const AttentionArgs args{.heads = c.heads, .scale = c.scale};
  const std::vector<double> want = on_host("attention", [&](Exec& ex, const Place& place) {
    const Tensor placed = place(packed);
    return attention(ex, place(q), placed.narrow(2, 0, width), placed.narrow(2, width, width), args);
  });
  const auto part = [&](int64_t begin, int64_t count) {
    std::vector<float> rows;
    for (int64_t b = 0; b < c.batch; ++b) {
      const auto from = values.begin() + (b * keys + begin) * 2 * width;
      rows.insert(rows.end(), from, from + count * 2 * width);
    }
    return tensor_from(host_device(), {c.batch, count, 2 * width}, rows.data(), dtype);
  };
  GpuTestExec gpu;
  const auto halves = [&](const Tensor& of) {
    return KeysValues{of.narrow(2, 0, width), of.narrow(2, width, width)};
  };
  const KeysValues first = halves(gpu.to_gpu(part(0, c.first)));
  // The second part is there when it is asked for, not before.
  const Tensor late = gpu.to_gpu(part(c.first, c.second));
  const Tensor second = gpu.ex.alloc(late.shape(), dtype);
  gpu.device.fill_zero(second.data(), second.bytes());
  const Tensor on_gpu = gpu.to_gpu(q);
  ASSERT_TRUE(takes_attention_over_parts(gpu.ex, on_gpu, first, args));
  int asked = 0;
  const Tensor y = attention_over_parts(gpu.ex, on_gpu, first, halves(second), args, [&] {
    gpu.device.copy_on_device(second.data(), late.data(), late.bytes());
    ++asked;
  });
  EXPECT_EQ(asked, 1);
  const std::vector<float> got = to_floats(gpu.device, y);
  const double spread = std::max(1.0f, c.second_spread);
  expect_near(
      {got.begin(), got.end()}, want,
      5 * unit_roundoff(dtype) + 8 * reduction_tolerance(DType::kF32, c.head_dim + keys) * spread * spread,
      fmt::format("{} {}x{}x{}x({}+{})x{}", dtype, c.batch, c.heads, c.queries, c.first, c.second,
                  c.head_dim));
}

TEST_P(GpuAttentionPartsTest, MatchTheReference) {
  for (const int64_t dim : {40, 64, 80, 160}) {
    check({2, 65, 64, 90, dim, 2}, GetParam());
    check({1, 37, 1, 300, dim, 2}, GetParam());
    check({1, 70, 257, 3, dim, 1, 0.05f}, GetParam());
    check({1, 33, 128, 128, dim, 1, 0, 6}, GetParam());
  }
  check({1, 48, 48, 100, 512, 1}, GetParam());  // the VAE's
}

// Parts of many keys: each of them in splits of its own.
TEST_P(GpuAttentionPartsTest, OfManyKeysMatchTheReference) { check({1, 16, 1024, 1500, 64, 1}, GetParam()); }

TEST_P(GpuAttentionPartsTest, RefuseMasks) {
  GpuTestExec gpu;
  const Tensor x = gpu.to_gpu(random_tensor({1, 8, 64}, GetParam(), 3));
  const Tensor mask = gpu.to_gpu(random_tensor({1, 1, 8, 8}, DType::kF32, 3));
  const KeysValues part{x, x};
  EXPECT_FALSE(takes_attention_over_parts(gpu.ex, x, part, {.causal = true}));
  EXPECT_FALSE(takes_attention_over_parts(gpu.ex, x, part, {.mask = &mask}));
  try {
    attention_over_parts(gpu.ex, x, part, part, {.causal = true}, [] {});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "attention over parts: flash attention takes all keys for all queries");
  }
}

}  // namespace
}  // namespace rocm_sd
