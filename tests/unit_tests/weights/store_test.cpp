// WeightStore: conversion on reading, row ranges, transposition, shapes, and the names maps' special cases.
#include "weights/store.hpp"

#include <gmock/gmock.h>

#include "unit_tests/weights/safetensors_files.hpp"
#include "weights/layout.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

// A component of a file written with these tensors.
WeightStore store_of(const std::filesystem::path& path, Component component, NameStyle style) {
  const TensorSet set = TensorSet::open(path);
  std::vector<NamedTensor> named;
  for (const TensorRef& ref : set.tensors()) named.push_back({ref.entry->name, ref});
  return WeightStore(component, "the store", set.files(), map_names(component, style, named).weights);
}

TEST(WeightStore, ConvertsEveryFloatType) {
  // Values that every type holds exactly, so that the conversion must be exact too.
  std::vector<float> values;
  for (int i = 0; i < 3000; ++i) values.push_back(static_cast<float>(i % 8 - 4) * 0.5f);
  for (const DType stored :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kF64}) {
    const TemporaryFolder folder;
    write_safetensors(folder / "f.safetensors", {tensor_of("w.weight", {3, 1000}, stored, values)}, {});
    const WeightStore store = store_of(folder / "f.safetensors", Component::kUnet, NameStyle::kDiffusers);
    EXPECT_EQ(store.dtype("w.weight"), stored);
    EXPECT_EQ(store.parameters(), 3000u);
    EXPECT_EQ(store.stored_bytes(), 3000 * dtype_size(stored));
    for (const DType want : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
      std::vector<char> got(3000 * dtype_size(want)), expected(got.size());
      store.read("w.weight", {3, 1000}, want, got.data());
      convert_elements(values.data(), DType::kF32, expected.data(), want, 3000);
      EXPECT_EQ(got, expected) << dtype_name(stored) << " to " << dtype_name(want);
    }
  }
}

TEST(WeightStore, ReadsLargeTensorsInParallelWithTheSameBits) {
  const TemporaryFolder folder;
  const int64_t count = (int64_t{5} << 20) + 13;  // several chunks and a tail
  const std::vector<float> values = random_values(count, 3);
  write_safetensors(folder / "f.safetensors", {tensor_of("w", {count}, DType::kF16, values)}, {});
  const WeightStore store = store_of(folder / "f.safetensors", Component::kUnet, NameStyle::kDiffusers);
  std::vector<float> got(static_cast<size_t>(count));
  store.read("w", {count}, DType::kF32, got.data());
  for (int64_t i = 0; i < count; ++i)
    ASSERT_EQ(got[static_cast<size_t>(i)], f16_to_float(float_to_f16(values[static_cast<size_t>(i)]))) << i;
}

TEST(WeightStore, AnErrorInsideAParallelReadIsThrown) {
  const TemporaryFolder folder;
  write_random(folder / "f.safetensors", {{"w", {8 << 20}}});
  const WeightStore store = store_of(folder / "f.safetensors", Component::kUnet, NameStyle::kDiffusers);
  std::filesystem::resize_file(folder / "f.safetensors", 1 << 20);
  std::vector<float> got(8u << 20);
  EXPECT_THROW(store.read("w", {8 << 20}, DType::kF32, got.data()), FormatError);
}

TEST(WeightStore, SaysWhatIsMissingOrMisshapen) {
  const TemporaryFolder folder;
  write_random(folder / "f.safetensors", {{"input_blocks.0.0.weight", {6, 4, 3, 3}}});
  const WeightStore store = store_of(folder / "f.safetensors", Component::kUnet, NameStyle::kLdm);
  float dst[6 * 4 * 3 * 3];
  const std::string missing =
      error_of<FormatError>([&] { store.read("conv_out.weight", {1}, DType::kF32, dst); });
  EXPECT_THAT(missing, HasSubstr("conv_out.weight"));
  EXPECT_THAT(missing, HasSubstr("the store"));
  const std::string shape =
      error_of<ShapeError>([&] { store.read("conv_in.weight", {6, 9, 3, 3}, DType::kF32, dst); });
  for (const char* part :
       {"conv_in.weight", "input_blocks.0.0.weight", "[6,9,3,3]", "[6,4,3,3]", "f.safetensors"})
    EXPECT_THAT(shape, HasSubstr(part));
}

TEST(WeightStore, AllowsTrailingOnesOnly) {
  EXPECT_TRUE(shapes_compatible({8, 8, 1, 1}, {8, 8}));
  EXPECT_TRUE(shapes_compatible({8, 8}, {8, 8, 1}));
  EXPECT_TRUE(shapes_compatible({8}, {8}));
  EXPECT_FALSE(shapes_compatible({8, 1}, {8}));
  EXPECT_FALSE(shapes_compatible({8, 8, 3, 3}, {8, 8}));
  EXPECT_FALSE(shapes_compatible({64}, {8, 8}));
  EXPECT_FALSE(shapes_compatible({8, 4}, {4, 8}));
}

TEST(WeightStore, SplitsAndTransposesOpenClip) {
  const TemporaryFolder folder;
  const std::vector<float> packed = random_values(12 * 4, 1), bias = random_values(12, 2),
                           projection = random_values(20, 3);
  const std::string head = "transformer.resblocks.0.attn.in_proj_";
  write_safetensors(folder / "f.safetensors",
                    {tensor_of(head + "weight", {12, 4}, DType::kF32, packed),
                     tensor_of(head + "bias", {12}, DType::kF32, bias),
                     tensor_of("text_projection", {4, 5}, DType::kF32, projection)},
                    {});
  const WeightStore store =
      store_of(folder / "f.safetensors", Component::kTextEncoder2, NameStyle::kOpenClip);
  std::vector<float> got(20);
  for (const auto& [part, row] : {std::pair("q", 0), std::pair("k", 4), std::pair("v", 8)}) {
    const std::string name = concat("text_model.encoder.layers.0.self_attn.", part, "_proj.");
    store.read(name + "weight", {4, 4}, DType::kF32, got.data());
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + 16, packed.begin() + row * 4)) << part;
    store.read(name + "bias", {4}, DType::kF32, got.data());
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + 4, bias.begin() + row)) << part;
  }
  store.read("text_projection.weight", {5, 4}, DType::kF32, got.data());
  for (int out = 0; out < 5; ++out)
    for (int in = 0; in < 4; ++in)
      EXPECT_EQ(got[static_cast<size_t>(out * 4 + in)], projection[static_cast<size_t>(in * 5 + out)]);
  EXPECT_TRUE(store.unused().empty());
}

TEST(WeightStore, PackedProjectionMustDivideByThree) {
  const TemporaryFolder folder;
  write_random(folder / "f.safetensors", {{"transformer.resblocks.0.attn.in_proj_bias", {13}}});
  EXPECT_THROW(store_of(folder / "f.safetensors", Component::kTextEncoder2, NameStyle::kOpenClip),
               FormatError);
}

TEST(WeightStore, ReportsWhatNobodyRead) {
  const TemporaryFolder folder;
  write_random(folder / "f.safetensors", {{"a", {1}}, {"b", {1}}, {"c", {1}}});
  const WeightStore store = store_of(folder / "f.safetensors", Component::kUnet, NameStyle::kDiffusers);
  float value;
  store.read("b", {1}, DType::kF32, &value);
  store.mark_used("c");
  EXPECT_THAT(store.unused(), testing::ElementsAre("a"));
}

TEST(WeightStore, MultipliesScaledFp8) {
  const TemporaryFolder folder;
  const auto path = folder / "f.safetensors";
  const TensorToWrite weight = tensor_of("l.weight", {2, 2}, DType::kF8E4M3, {1, -2, 0.5f, 4});
  write_safetensors(path, {weight, tensor_of("l.scale_weight", {1}, DType::kF32, {3})}, {});
  float got[4];
  store_of(path, Component::kUnet, NameStyle::kDiffusers).read("l.weight", {2, 2}, DType::kF32, got);
  EXPECT_THAT(got, testing::ElementsAre(3, -6, 1.5f, 12));
  for (const float bad : {NAN, INFINITY, 0.0f, -1.0f}) {
    write_safetensors(path, {weight, tensor_of("l.scale_weight", {1}, DType::kF32, {bad})}, {});
    EXPECT_THROW(store_of(path, Component::kUnet, NameStyle::kDiffusers), FormatError);
  }
  write_safetensors(path, {weight, tensor_of("l.scale_weight", {2}, DType::kF32, {1, 1})}, {});
  EXPECT_THROW(store_of(path, Component::kUnet, NameStyle::kDiffusers), FormatError);
}

TEST(NameMaps, TwoTensorsForOnePlaceAreRefused) {
  const TemporaryFolder folder;
  const std::string head = "decoder.mid_block.attentions.0.";
  write_random(folder / "f.safetensors", {{head + "query.weight", {2, 2}}, {head + "to_q.weight", {2, 2}}});
  const std::string text = error_of<FormatError>(
      [&] { store_of(folder / "f.safetensors", Component::kVae, NameStyle::kDiffusers); });
  EXPECT_THAT(text, HasSubstr("query.weight"));
  EXPECT_THAT(text, HasSubstr("to_q.weight"));
}

TEST(NameMaps, NumbersAreReadStrictly) {
  EXPECT_EQ(numbered("a.12.b.c", "a.")->number, 12);
  EXPECT_EQ(numbered("a.12.b.c", "a.")->rest, "b.c");
  EXPECT_EQ(numbered("a.0", "a.")->rest, "");
  for (const char* bad :
       {"a.", "a.x", "a.-1.b", "a.01.b", "a.12345.b", "a.99999999999999999999.b", "a.1x.b", "b.1.b"})
    EXPECT_FALSE(numbered(bad, "a.").has_value()) << bad;
}

TEST(NameMaps, TinyVaeNumbersMoveByTheClamp) {
  EXPECT_EQ(sequential_tiny_vae_name("1.weight", true), "decoder.layers.0.weight");
  EXPECT_EQ(sequential_tiny_vae_name("3.conv.0.weight", true), "decoder.layers.2.conv.0.weight");
  EXPECT_EQ(sequential_tiny_vae_name("0.weight", false), "encoder.layers.0.weight");
  EXPECT_EQ(sequential_tiny_vae_name("0.weight", true), std::nullopt);
  EXPECT_EQ(sequential_tiny_vae_name("x", true), std::nullopt);
}

}  // namespace
}  // namespace rocm_sd
