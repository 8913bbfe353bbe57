// cuDNN's attention on the stand-in that checks every call (tests/support/fake_vendor).
#include "vendor/attention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "support/fake_vendor/fake_library.hpp"

namespace rocm_sd::vendor {
namespace {

using testing::HasSubstr;

class AttentionTest : public testing::Test {
 protected:
  ~AttentionTest() override { EXPECT_STREQ(fake.complaints(), ""); }
  testing_support::FakeVendor fake{ROCM_SD_FAKE_VENDOR};
};

// Rows of `stride` elements, of which q, k and v may share one: offset is where each begins.
struct Operands {
  AttentionShape shape;
  std::vector<char> q, k, v, y, workspace;

  static std::vector<char> randoms(int64_t count, DType type, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-2, 2);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = uniform(random);
    std::vector<char> out(values.size() * dtype_size(type));
    convert_elements(values.data(), DType::kF32, out.data(), type, count);
    return out;
  }
  static std::vector<double> loaded(const std::vector<char>& bytes, DType type) {
    std::vector<float> out(bytes.size() / dtype_size(type));
    convert_elements(bytes.data(), type, out.data(), DType::kF32, static_cast<int64_t>(out.size()));
    return {out.begin(), out.end()};
  }

  Operands(const AttentionShape& s, size_t workspace_bytes) : shape(s), workspace(workspace_bytes) {
    q = randoms(s.batch * s.q.image, s.dtype, 1);
    k = randoms(s.batch * s.k.image, s.dtype, 2);
    v = randoms(s.batch * s.v.image, s.dtype, 3);
    y.assign(static_cast<size_t>(s.batch * s.queries * s.heads * s.head_dim) * dtype_size(s.dtype), '\xff');
  }
  AttentionOperands pointers(float scale) {
    return {q.data(), k.data(), v.data(), y.data(), workspace.empty() ? nullptr : workspace.data(), scale};
  }
  void expect_right(float scale) const {
    const AttentionShape& s = shape;
    const auto qs = loaded(q, s.dtype), ks = loaded(k, s.dtype), vs = loaded(v, s.dtype),
               got = loaded(y, s.dtype);
    const double unit = s.dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
    size_t at = 0;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t i = 0; i < s.queries; ++i)
        for (int64_t h = 0; h < s.heads; ++h) {
          std::vector<double> weights;
          for (int64_t j = 0; j < s.keys; ++j) {
            double score = 0;
            for (int64_t d = 0; d < s.head_dim; ++d)
              score += qs[static_cast<size_t>(b * s.q.image + i * s.q.row + h * s.head_dim + d)] *
                       ks[static_cast<size_t>(b * s.k.image + j * s.k.row + h * s.head_dim + d)];
            weights.push_back(score * static_cast<double>(scale));
          }
          const double most = *std::ranges::max_element(weights);
          double sum = 0;
          for (double& w : weights) sum += w = std::exp(w - most);
          for (int64_t d = 0; d < s.head_dim; ++d, ++at) {
            double want = 0;
            for (int64_t j = 0; j < s.keys; ++j)
              want += weights[static_cast<size_t>(j)] / sum *
                      vs[static_cast<size_t>(b * s.v.image + j * s.v.row + h * s.head_dim + d)];
            ASSERT_NEAR(got[at], want, unit * std::fabs(want) + 1e-6)
                << b << " " << h << " " << i << " " << d;
          }
        }
  }
};

// 2 images, 3 heads of 8, 5 queries over 7 keys, in rows that are longer than they need to be.
AttentionShape odd_shape(DType dtype) {
  AttentionShape s;
  s.batch = 2;
  s.heads = 3;
  s.queries = 5;
  s.keys = 7;
  s.head_dim = 8;
  s.q = {5 * 32 + 16, 32};
  s.k = {7 * 24, 24};
  s.v = {7 * 48, 48};
  s.dtype = dtype;
  return s;
}

TEST_F(AttentionTest, EveryEngineComputesIt) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    fake.workspace(dtype == DType::kF16 ? 0 : 4096);
    const auto library = open_cudnn_attention();
    const auto ways = library->prepare(odd_shape(dtype), 4);
    // Of the four that are proposed the second does not finalize and the fourth sums in any order.
    ASSERT_EQ(ways.size(), 2u);
    for (const auto& way : ways) {
      Operands o(odd_shape(dtype), way->workspace_bytes());
      way->run(nullptr, o.pointers(0.4f));
      o.expect_right(0.4f);
    }
  }
}

TEST_F(AttentionTest, TheScaleIsReadWhenTheWorkIsStarted) {
  static std::vector<std::pair<void (*)(void*), void*>> waiting;
  fake.queue([](void*, void (*work)(void*), void* of) { waiting.emplace_back(work, of); });
  const auto library = open_cudnn_attention();
  const auto way = library->prepare(odd_shape(DType::kF16), 1).at(0);
  Operands o(odd_shape(DType::kF16), way->workspace_bytes());
  AttentionOperands operands = o.pointers(0.25f);
  way->run(nullptr, operands);
  operands.scale = 100;  // the stream comes to the work later
  ASSERT_EQ(waiting.size(), 1u);
  for (const auto& [work, of] : waiting) work(of);
  o.expect_right(0.25f);
  waiting.clear();
  fake.queue(nullptr);
}

TEST_F(AttentionTest, LeavesNothingBehind) {
  const size_t before = fake.live();
  {
    const auto library = open_cudnn_attention();
    const auto ways = library->prepare(odd_shape(DType::kF16), 4);
    EXPECT_GT(fake.live(), before);
  }
  EXPECT_EQ(fake.live(), before);
}

TEST_F(AttentionTest, FailuresNameTheCall) {
  const auto thrown = [](const auto& body) {
    try {
      body();
    } catch (const LibraryError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  fake.fail("cudnnCreate", 1);
  EXPECT_THAT(thrown([] { (void)open_cudnn_attention(); }), HasSubstr("cudnnCreate"));
  fake.fail("cudnnCreate", 0);
  const auto library = open_cudnn_attention();
  fake.fail("cudnnBackendFinalize", 3);
  EXPECT_THAT(thrown([&] { (void)library->prepare(odd_shape(DType::kF16), 4); }),
              HasSubstr("cudnnBackendFinalize"));
  fake.fail("cudnnBackendFinalize", 0);
  const auto way = library->prepare(odd_shape(DType::kF16), 1).at(0);
  Operands o(odd_shape(DType::kF16), way->workspace_bytes());
  fake.fail("cudnnBackendExecute", 5);
  EXPECT_THAT(thrown([&] { way->run(nullptr, o.pointers(1)); }), HasSubstr("cudnnBackendExecute"));
  fake.fail("cudnnBackendExecute", 0);
}

}  // namespace
}  // namespace rocm_sd::vendor
