// Embeddings on the GPU against the reference; ids outside the table.
#include "kernels/embed/embed.hpp"

#include <gtest/gtest.h>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

class GpuEmbedTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, GpuEmbedTest, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return fmt::format("{}", info.param); });

Tensor ids_on(Device& device, const Shape& shape, const std::vector<int32_t>& ids) {
  const Tensor out = make_tensor(device, shape, DType::kI32);
  device.copy_to_device(out.data(), ids.data(), out.bytes());
  return out;
}

TEST_P(GpuEmbedTest, AddsTokensAndPositions) {
  const DType dtype = GetParam();
  for (const DType table_type : {DType::kF32, DType::kBF16, DType::kF16})
    for (const int64_t width : {7, 40, 768}) {
      std::vector<int32_t> ids;
      for (int i = 0; i < 2 * 77; ++i) ids.push_back(i * 37 % 103 - 1);  // -1 and 100.. are outside
      const Tensor table = random_tensor({100, width}, table_type, 1),
                   positions = random_tensor({80, width}, table_type, 2);
      expect_like_reference(
          "embed_tokens",
          [&](Exec& ex, const Place& place) {
            return embed_tokens(ex, ids_on(ex.device(), {2, 77}, ids), {place(table)}, {place(positions)},
                                dtype);
          },
          2 * unit_roundoff(dtype), concat(table_type, " to ", dtype, " ", width));
    }
}

TEST_P(GpuEmbedTest, TimestepsMatchReference) {
  const DType dtype = GetParam();
  std::vector<float> t;
  for (int i = 0; i < 50; ++i) t.push_back(static_cast<float>(999 - 20 * i) + (i % 3 ? 0.0f : 0.5f));
  const Tensor input = tensor_from(host_device(), {50}, t.data());
  for (const int64_t dim : {2, 5, 256, 320})
    for (const bool flip : {true, false})
      expect_like_reference(
          "timestep_embedding",
          [&](Exec& ex, const Place& place) {
            return timestep_embedding(ex, place(input), dim, dtype,
                                      {.flip_sin_to_cos = flip, .downscale_freq_shift = flip ? 0.0f : 0.5f});
          },
          // One unit of the largest angle through sine and cosine, should a frequency be rounded otherwise.
          2 * unit_roundoff(dtype) + 2 * 999 * unit_roundoff(DType::kF32), concat(dtype, " ", dim));
}

TEST_P(GpuEmbedTest, RunsInAGraph) {
  const std::vector<float> t = {999, 1.5f};
  const Tensor input = tensor_from(host_device(), {2}, t.data());
  expect_same_bits_as_graph(
      [&](Exec& ex, const Place& place) { return timestep_embedding(ex, place(input), 320, GetParam()); });
}

}  // namespace
}  // namespace rocm_sd
