// Components of live models: tensors in memory in place of files.
#include "weights/memory_component.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

namespace rocm_sd {
namespace {

std::shared_ptr<const SafetensorsFile> file_of(const std::vector<MemoryTensor>& tensors) {
  return SafetensorsFile::of_memory("a model", tensors);
}

TEST(MemoryFile, ReadsWhatLiesThere) {
  std::vector<float> a(12), b(4, 2.0f);
  std::iota(a.begin(), a.end(), 0.0f);
  const auto file = file_of({{"a", DType::kF32, {3, 4}, a.data()}, {"b", DType::kF32, {4}, b.data()}});
  EXPECT_EQ(file->entries().size(), 2u);
  EXPECT_EQ(file->file_bytes(), 64u);
  const TensorEntry* entry = file->find("a");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(file->in_memory(*entry), a.data());
  float part[2] = {-1, -1};
  file->read(*entry, 5 * sizeof(float), sizeof(part), part);
  EXPECT_EQ(part[0], 5.0f);
  EXPECT_EQ(part[1], 6.0f);
  EXPECT_THROW(file->read(*entry, 0, 49, part), InternalError);  // beyond its end
}

TEST(MemoryFile, RefusesNamesGivenTwiceAndValuesThatAreNotThere) {
  const float x = 1;
  EXPECT_THROW(file_of({{"a", DType::kF32, {1}, &x}, {"a", DType::kF32, {1}, &x}}), FormatError);
  const auto shapes_only = file_of({{"a", DType::kF32, {1}, nullptr}});
  float y = 0;
  EXPECT_THROW(shapes_only->read(shapes_only->entries()[0], 0, 4, &y), InternalError);
}

// The least that is recognised as a UNet, under Diffusers' or LDM's names.
std::vector<MemoryTensor> small_unet(bool ldm) {
  const auto named = [&](const char* diffusers, const char* other) { return ldm ? other : diffusers; };
  return {{named("conv_in.weight", "input_blocks.0.0.weight"), DType::kF32, {32, 4, 3, 3}, nullptr},
          {named("time_embedding.linear_1.weight", "time_embed.0.weight"), DType::kF32, {128, 32}, nullptr},
          {named("conv_out.weight", "out.2.weight"), DType::kF32, {4, 32, 3, 3}, nullptr}};
}

TEST(ComponentInMemory, TakesEitherLayout) {
  for (const bool ldm : {false, true}) {
    const TensorSet set = TensorSet::of(file_of(small_unet(ldm)));
    const LoadedComponent unet =
        component_in_memory(set, Component::kUnet, nlohmann::json{{"in_channels", 4}});
    EXPECT_EQ(unet.store.shape("conv_in.weight"), Shape({32, 4, 3, 3}));
    EXPECT_EQ(unet.store.at("conv_out.weight").file_name(), ldm ? "out.2.weight" : "conv_out.weight");
    EXPECT_FALSE(unet.config_is_derived);
    EXPECT_EQ((*unet.config)["in_channels"], 4);
  }
}

TEST(ComponentInMemory, NamesWhatIsMissing) {
  const float x = 1;
  const TensorSet set = TensorSet::of(file_of({{"a", DType::kF32, {1}, &x}}));
  try {
    component_in_memory(set, Component::kUnet);
    FAIL() << "no FormatError";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find("expected a unet"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace rocm_sd
