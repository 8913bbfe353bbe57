// Embeddings: every implementation; values of Diffusers; ids outside the table; bad input.
#include "kernels/embed/embed.hpp"

#include <gmock/gmock.h>

#include "base/format.hpp"
#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;
using testing::HasSubstr;

class EmbedTest : public testing::TestWithParam<std::tuple<std::string, DType>> {};
INSTANTIATE_TEST_SUITE_P(All, EmbedTest,
                         testing::Combine(testing::Values("scalar", "ref"),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
                         });

Tensor ids_tensor(const Shape& shape, const std::vector<int32_t>& ids) {
  const Tensor out = make_tensor(host_device(), shape, DType::kI32);
  host_device().copy_to_device(out.data(), ids.data(), out.bytes());
  return out;
}

TEST_P(EmbedTest, AddsTokensAndPositions) {
  const auto& [impl, dtype] = GetParam();
  const std::vector<int32_t> ids = {0, 9, 3, 1, 10, -1};  // the last two are outside and read row 0
  const Tensor input = ids_tensor({2, 3}, ids);
  for (const DType table_type : {DType::kF32, DType::kBF16, DType::kF16}) {
    const EmbeddingWeight tokens{random_tensor({10, 7}, table_type, 1)},
        positions{random_tensor({4, 7}, DType::kF32, 2)};
    const auto op = [&](Exec& ex) { return embed_tokens(ex, input, tokens, positions, dtype); };
    with_implementation("embed_tokens", impl, [&] {
      TestExec test;
      const Tensor y = op(test.ex);
      EXPECT_EQ(y.shape(), Shape({2, 3, 7}));
      const std::vector<double> table = to_doubles(tokens.table), places = to_doubles(positions.table);
      std::vector<double> want;
      for (size_t i = 0; i < 6; ++i)
        for (size_t c = 0; c < 7; ++c)
          want.push_back(table[(i < 4 ? ids[i] : 0) * 7 + c] + places[i % 3 * 7 + c]);
      expect_tensor_near(y, want, 2 * unit_roundoff(dtype));
      expect_same_bits_when_replayed(op);
    });
  }
}

// get_timestep_embedding(torch.tensor([999., 1.5]), 6, flip_sin_to_cos=..., downscale_freq_shift=...) of
// Diffusers in torch 2.13, and of width 5.
TEST_P(EmbedTest, MatchesDiffusersTimesteps) {
  const auto& [impl, dtype] = GetParam();
  const float t[2] = {999.0f, 1.5f};
  const Tensor input = tensor_from(host_device(), {2}, t);
  const auto check = [&](int64_t dim, const TimestepEmbeddingArgs& args, const std::vector<double>& want) {
    const auto op = [&](Exec& ex) { return timestep_embedding(ex, input, dim, dtype, args); };
    with_implementation("timestep_embedding", impl, [&] {
      TestExec test;
      // One unit of the largest angle, 999 * 2^-24 * 2, through sine and cosine.
      expect_tensor_near(op(test.ex), want, 2 * unit_roundoff(dtype) + 2 * 999 * unit_roundoff(DType::kF32));
      expect_same_bits_when_replayed(op);
    });
  };
  check(6, {.flip_sin_to_cos = true, .downscale_freq_shift = 0},
        {0.999649823, -0.728673339, -0.549264669, -0.0264607519, 0.684861422, 0.835648477, 0.070737198,
         0.99757725, 0.999994755, 0.997494996, 0.0695675984, 0.00323164649});
  check(6, {.flip_sin_to_cos = false, .downscale_freq_shift = 0},
        {-0.0264607519, 0.684861422, 0.835648477, 0.999649823, -0.728673339, -0.549264669, 0.997494996,
         0.0695675984, 0.00323164649, 0.070737198, 0.99757725, 0.999994755});
  check(5, {.flip_sin_to_cos = true, .downscale_freq_shift = 0},
        {0.999649823, -0.844469786, -0.0264607519, -0.535603166, 0, 0.070737198, 0.999887526, 0.997494996,
         0.0149994371, 0});
  check(8, {.flip_sin_to_cos = true, .downscale_freq_shift = 1},
        {0.999649823, -0.728673339, -0.549264669, 0.995014131, -0.0264607519, 0.684861422, 0.835648477,
         0.0997339115, 0.070737198, 0.99757725, 0.999994755, 1, 0.997494996, 0.0695675984, 0.00323164649,
         0.000149999978});
}

TEST_P(EmbedTest, MatchesReferenceAtWorkingSizes) {
  const auto& [impl, dtype] = GetParam();
  std::vector<float> t;
  for (int i = 0; i < 50; ++i) t.push_back(static_cast<float>(999 - 20 * i));
  const Tensor input = tensor_from(host_device(), {50}, t.data());
  for (const int64_t dim : {2, 256, 320}) {
    const auto run = [&, dim = dim](const std::string& name) {
      const ForcedImpl forced("timestep_embedding", name);
      TestExec test;
      return to_doubles(timestep_embedding(test.ex, input, dim, dtype));
    };
    expect_near(run(impl), run("ref"), 2 * unit_roundoff(dtype) + 2 * 999 * unit_roundoff(DType::kF32));
  }
}

TEST(EmbedChecks, NameWhatDoesNotFit) {
  TestExec test;
  const Tensor ids = ids_tensor({1, 3}, {0, 1, 2});
  const EmbeddingWeight tokens{random_tensor({10, 4}, DType::kF32, 1)},
      positions{random_tensor({2, 4}, DType::kF32, 2)};
  const auto message = [](const auto& body) { return message_of<Error>(body); };
  EXPECT_THAT(message([&] { embed_tokens(test.ex, ids, tokens, positions, DType::kF32); }),
              HasSubstr("positions [2,4] do not serve ids [1,3] of width 4"));
  EXPECT_THAT(message([&] { embed_tokens(test.ex, ids, {}, positions, DType::kF32); }),
              HasSubstr("table of tokens must be [rows,C], is missing"));
  EXPECT_THAT(message([&] { embed_tokens(test.ex, tokens.table, tokens, tokens, DType::kF32); }),
              HasSubstr("ids must be i32 [B,T], are f32 [10,4]"));
  EXPECT_THAT(message([&] { embed_tokens(test.ex, ids, tokens, tokens, DType::kF64); }),
              HasSubstr("not f64"));
  const Tensor t = random_tensor({2}, DType::kF32, 1);
  EXPECT_THAT(message([&] { timestep_embedding(test.ex, t, 1, DType::kF32); }),
              HasSubstr("has no frequencies"));
  EXPECT_THAT(message([&] { timestep_embedding(test.ex, t, 2, DType::kF32, {.downscale_freq_shift = 1}); }),
              HasSubstr("has no frequencies"));
  EXPECT_THAT(message([&] { timestep_embedding(test.ex, ids, 4, DType::kF32); }),
              HasSubstr("t must be f32 [B]"));
}

}  // namespace
}  // namespace rocm_sd
