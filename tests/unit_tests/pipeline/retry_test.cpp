// A part whose result is not finite is loaded in a wider type and runs again; the stages before it do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "rocm_sd/pipeline.hpp"
#include "weights/checkpoint.hpp"

namespace rocm_sd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kDemo = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";

// The demo model with one component in host memory, where a test changes it.
class ChangedModel {
 public:
  explicit ChangedModel(Component component) : component_(component) {
    const Checkpoint checkpoint = Checkpoint::open(kDemo, {});
    const WeightStore& store = checkpoint.store(component);
    for (const auto& [name, tensor] : store.weights()) {
      const int64_t count = tensor.shape.numel();
      values[name].resize(static_cast<size_t>(count));
      store.read_range(tensor, 0, count, DType::kF32, values[name].data());
      for (int i = 0; i < tensor.shape.rank(); ++i) shapes_[name].push_back(tensor.shape[i]);
    }
  }

  // Channel 0 of a norm's output is 0, which SiLU leaves 0: whatever finite number the layer after it
  // multiplies it by, the result is the same.
  void silence(const std::string& norm) { values[norm + ".weight"][0] = values[norm + ".bias"][0] = 0; }

  Pipeline load(const char* dtype) const {
    LoadOptions options{.model = kDemo, .device = "cpu", .dtype = dtype};
    for (const auto& [name, shape] : shapes_)
      options.live.push_back(
          {std::string(component_name(component_)), name, "F32", shape, values.at(name).data()});
    return Pipeline::load(options);
  }

  std::map<std::string, std::vector<float>> values;

 private:
  Component component_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

GenerateRequest small_request(bool with_image) {
  GenerateRequest request;
  request.prompt = "a red apple";
  request.width = request.height = 64;
  request.steps = 2;
  request.seed = 3;
  if (with_image) request.init_image = Image{64, 64, std::vector<uint8_t>(64 * 64 * 3, 77), {}};
  return request;
}

double psnr(const Image& a, const Image& b) {
  double squares = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) squares += std::pow(double{1} * a.rgb[i] - b.rgb[i], 2);
  return squares == 0 ? 100 : 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / squares);
}

struct Case {
  const char* name;
  Component component;
  const char *norm, *after;  // a norm with SiLU, and the layer that reads it
  const char* model;         // in messages
  const char* dtype;         // of ModelInfo once the part is in f32, the others in bf16
  bool with_image;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Retry : public ::testing::TestWithParam<Case> {};

// Finite in f32, and infinite in bf16 and f16: the largest number of bf16 is 3.39e38.
constexpr float kBeyondBf16 = 3.4e38f;

TEST_P(Retry, LoadsTheWiderTypeAndGoesOn) {
  const Case& c = GetParam();
  const GenerateRequest request = small_request(c.with_image);
  ChangedModel model(c.component);
  model.silence(c.norm);
  const Image want = model.load("f32").generate(request).pictures[0].image;
  model.values[std::string(c.after) + ".weight"][0] = kBeyondBf16;
  Pipeline pipeline = model.load("bf16");
  EXPECT_EQ(pipeline.info().dtype.find(c.dtype), std::string::npos) << "before";
  std::vector<std::string> stages;
  const Image got = pipeline
                        .generate(request, {.progress =
                                                [&](const Progress& p) {
                                                  if (stages.empty() || stages.back() != p.stage)
                                                    stages.push_back(p.stage);
                                                  return true;
                                                }})
                        .pictures[0]
                        .image;
  EXPECT_GT(psnr(got, want), 40) << "bf16's bound";
  EXPECT_THAT(pipeline.info().dtype, HasSubstr(c.dtype));
  std::vector<std::string> each_once = {"text", "encode", "sample", "decode"};
  if (!c.with_image) each_once.erase(each_once.begin() + 1);
  EXPECT_EQ(stages, each_once) << "the stages before it are not run again";
  EXPECT_EQ(psnr(pipeline.generate(request).pictures[0].image, got), 100) << "and it stays in that type";
}

TEST_P(Retry, SaysWhatIsDamaged) {
  const Case& c = GetParam();
  ChangedModel model(c.component);
  model.values[std::string(c.after) + ".weight"][0] = std::nanf("");
  Pipeline pipeline = model.load("bf16");
  try {
    pipeline.generate(small_request(c.with_image));
    FAIL() << "expected a GenerationError";
  } catch (const GenerationError& e) {
    EXPECT_THAT(e.what(), HasSubstr(std::string(c.model) + ": "));
    EXPECT_THAT(e.what(), HasSubstr("values are not finite in f32; are the weights damaged?"));
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, Retry,
                         ::testing::Values(Case{"unet", Component::kUnet, "conv_norm_out", "conv_out", "UNet",
                                                "f32, vae bf16", false},
                                           Case{"decoder", Component::kVae, "decoder.conv_norm_out",
                                                "decoder.conv_out", "VAE decoder", "vae f32", false},
                                           Case{"encoder", Component::kVae, "encoder.conv_norm_out",
                                                "encoder.conv_out", "VAE encoder", "vae f32", true}),
                         [](const auto& info) { return info.param.name; });

// On the CPU the text is encoded in f32 from the first: there is no wider type.
TEST(RetryText, SaysWhatIsDamaged) {
  ChangedModel model(Component::kTextEncoder);
  model.values.at("text_model.final_layer_norm.bias")[0] = std::nanf("");
  Pipeline pipeline = model.load("f32");
  try {
    pipeline.generate(small_request(false));
    FAIL() << "expected a GenerationError";
  } catch (const GenerationError& e) {
    EXPECT_THAT(e.what(), HasSubstr("text encoder: "));
    EXPECT_THAT(e.what(), HasSubstr("values are not finite in f32"));
  }
}

}  // namespace
}  // namespace rocm_sd
