// Predictions against work counts made by hand, and a GPU on paper that touches nothing.
#include "analysis/predict.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analysis/paper_gpu.hpp"
#include "base/error.hpp"
#include "runtime/kernel_archive.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

TEST(GpuProducts, RatesAreTheMakersFigures) {
  const auto tflops = [](const char* name, RateType type) {
    return peak_rate(*find_gpu_product(name), type) / 1e12;
  };
  EXPECT_NEAR(tflops("RX 7900 XTX", RateType::kF16), 122.8, 0.1);
  EXPECT_NEAR(tflops("rx9070xt", RateType::kF16), 194.6, 0.1);
  EXPECT_NEAR(tflops("RX 9070 XT", RateType::kF8), 389.3, 0.2);
  EXPECT_NEAR(tflops("MI300X", RateType::kF16), 1307.4, 0.1);
  EXPECT_NEAR(tflops("MI300X", RateType::kI8), 2614.9, 0.2);
  EXPECT_NEAR(tflops("MI350X", RateType::kF16), 2307, 1);
  EXPECT_NEAR(tflops("RTX 4090", RateType::kF16), 165.2, 0.1);
  EXPECT_NEAR(tflops("H200 SXM", RateType::kF16), 989.4, 0.1);
  EXPECT_EQ(tflops("RX 7900 XTX", RateType::kF8), 0);
  EXPECT_EQ(find_gpu_product("RX 5700"), nullptr);
  for (const GpuProduct& gpu : gpu_products()) EXPECT_GT(peak_rate(gpu, RateType::kF16), 0) << gpu.name;
}

TEST(PaperGpu, CountsMemoryAndRunsNothing) {
  GpuProduct gpu = *find_gpu_product("MI300X");
  gpu.memory_gb = 1;
  const auto device = make_paper_gpu(gpu);
  EXPECT_EQ(device->traits().arch, "gfx942");
  EXPECT_EQ(device->traits().lanes, 64);
  EXPECT_EQ(device->traits().compute_units, 304);
  EXPECT_EQ(make_paper_gpu(*find_gpu_product("RX 7900 XTX"))->traits().compute_units, 48);
  void* most = device->allocate(900u << 20);
  ASSERT_NE(most, nullptr);
  device->copy_to_device(most, "abc", 3);  // no such memory: must not be touched
  device->fill_zero(most, 900u << 20);
  EXPECT_THROW(device->allocate(200u << 20), OutOfMemoryError);
  device->free(most, 900u << 20);
  device->free(device->allocate(200u << 20), 200u << 20);
  char byte = 0;
  EXPECT_THROW(device->copy_to_host(&byte, nullptr, 1), InternalError);
  EXPECT_THROW(make_paper_gpu({.name = "x", .arch = "gfx803"}), UsageError);
}

// The families whose kernels this build has; the archives of `make test` hold one target of each.
std::vector<const char*> products_with_kernels() {
  std::vector<const char*> names;
  for (const auto& [name, targets] : std::vector<std::pair<const char*, std::vector<const char*>>>{
           {"RX 7900 XTX", {"gfx1100", "gfx1101", "gfx1151"}},
           {"RX 9070 XT", {"gfx1200", "gfx1201"}},
           {"MI300X", {"gfx90a", "gfx942"}},
           {"H200 SXM", {"sm_80", "sm_90"}}})
    for (const char* target : targets)
      if (find_kernel_archive(target)) {
        names.push_back(name);
        break;
      }
  return names;
}

TEST(Predict, Sd15sWorkIsThatOfTheArchitecture) {
  const auto names = products_with_kernels();
  if (names.empty()) GTEST_SKIP() << "this build has no kernel archive (ROCM_SD_ARCHS)";
  for (const char* name : names) {
    SCOPED_TRACE(name);
    const GpuProduct& gpu = *find_gpu_product(name);
    const ModelBound bound = predict(gpu, known_model("sd15"), {}, 20, DType::kF16);
    ASSERT_EQ(bound.stages.size(), 4u);
    const StageBound& unet = bound.stages[2];
    EXPECT_EQ(unet.stage, "unet");
    double matrix = 0, attention = 0, slowest = 0;
    for (const OpBound& op : unet.ops) {
      if (op.op == "attention") attention = op.flops;
      if (op.op == "attention" || op.op == "conv2d" || op.op.starts_with("linear")) matrix += op.flops;
      EXPECT_GE(op.bound_ms, std::max(op.issue_ms, op.memory_ms) * (1 - 1e-9)) << op.op;
      EXPECT_LE(op.bound_ms, (op.issue_ms + op.memory_ms) * (1 + 1e-9)) << op.op;
      slowest = std::max(slowest, op.bound_ms);
    }
    EXPECT_EQ(unet.ops.front().bound_ms, slowest);
    // Counted from the architecture: 1606.5 GFLOP a step with guidance, 252.1 of them in attention. The
    // text's keys and values (2 x 77 rows) and the time projections are made before the loop.
    EXPECT_NEAR(attention / 1e9, 252.1, 0.3);
    EXPECT_NEAR(matrix / 1e9, 1606.5, 13);
    // 859.5 M parameters of two bytes; attention's and the time's among them.
    EXPECT_GT(unet.weight_bytes, 1'700'000'000u);
    // The peak's time at least; the main loops that were counted allow half of the peak or better. 800.7
    // GFLOP are 3x3 filters, of whose multiplications Winograd's kernel, RDNA's default, makes 4/9.
    const bool winograd = gpu.arch.starts_with("gfx1");
    const double peaks = unet.bound_ms * peak_rate(gpu, RateType::kF16) / 1e3 / 1606.5e9;
    EXPECT_GT(peaks, winograd ? (1606.5 - 800.7 * 5 / 9) / 1606.5 : 0.99);
    EXPECT_LT(peaks, 2.0);
    EXPECT_TRUE(bound.fits);
    EXPECT_NEAR(
        bound.picture_ms,
        bound.stages[0].bound_ms + bound.stages[1].bound_ms + 20 * unet.bound_ms + bound.stages[3].bound_ms,
        1e-9);
  }
}

TEST(Predict, SdxlDoesNotFitEverywhere) {
  const auto names = products_with_kernels();
  if (names.empty()) GTEST_SKIP() << "this build has no kernel archive (ROCM_SD_ARCHS)";
  GpuProduct small = *find_gpu_product(names[0]);
  small.memory_gb = 4;
  const ModelBound bound =
      predict(small, known_model("sdxl"), {.height = 1024, .width = 1024}, 20, DType::kF16);
  EXPECT_FALSE(bound.fits);
  EXPECT_GT(bound.peak_bytes, 6'800'000'000u);
  EXPECT_THAT(prediction_text(bound), HasSubstr("more than the GPU has"));
  EXPECT_THAT(prediction_text(bound), HasSubstr("not a speed"));
  EXPECT_EQ(prediction_json(bound)["fits"], false);
}

TEST(Predict, RefusesWhatIsNotAPicture) {
  const GpuProduct& gpu = gpu_products().front();
  EXPECT_THROW(known_model("sdx"), UsageError);
  for (const PictureShape& bad :
       {PictureShape{.height = 0}, PictureShape{.width = 100}, PictureShape{.batch = 0},
        PictureShape{.tokens = 78}, PictureShape{.height = -512}})
    EXPECT_THROW(predict(gpu, known_model("sd15"), bad, 20, DType::kF16), ShapeError);
  EXPECT_THROW(predict(gpu, known_model("sd15"), {}, 0, DType::kF16), UsageError);
}

TEST(Predict, ReadsAGpuFromJson) {
  const auto json = nlohmann::json::parse(
      R"({"name": "mine", "arch": "gfx1100", "compute_units": 60, "gigahertz": 2.0, "memory_gb": 16, "bandwidth_gb_per_s": 500})");
  const GpuProduct gpu = gpu_product_from_json(json, "gpu.json");
  EXPECT_NEAR(peak_rate(gpu, RateType::kF16), 60 * 2e9 * 512, 1);
  for (const char* field :
       {"name", "arch", "compute_units", "gigahertz", "memory_gb", "bandwidth_gb_per_s"}) {
    auto broken = json;
    broken[field] = -1;
    EXPECT_THROW(gpu_product_from_json(broken, "gpu.json"), FormatError) << field;
    broken.erase(field);
    EXPECT_THROW(gpu_product_from_json(broken, "gpu.json"), FormatError) << field;
  }
  EXPECT_THROW(gpu_product_from_json(nlohmann::json::array(), "gpu.json"), FormatError);
}

}  // namespace
}  // namespace rocm_sd
