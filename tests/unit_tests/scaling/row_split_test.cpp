// Divided rows: two to four ranks draw the image that one draws, of even and uneven heights; the exchanges by
// themselves against maps that are whole.
#include "models/row_split.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "kernels/norm/norm.hpp"
#include "models/layer_ops.hpp"
#include "rocm_sd/multi.hpp"
#include "scaling/load_multi.hpp"
#include "scaling/shared_hub.hpp"
#include "support/failing_device.hpp"
#include "support/random_control.hpp"
#include "support/random_ip_adapter.hpp"
#include "support/split_testing.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;
using testing_support::expect_alike;
using testing_support::FailingDevice;
using testing_support::picture;

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
const std::string kExamples = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo_examples";

template <class Body>
void run_ranks(int count, const Body& body) {
  SharedHub hub(std::vector<std::string>(static_cast<size_t>(count), "cpu"), {});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      HubRanks ranks(hub, rank, {Division::kRows});
      ranks.begin();
      body(ranks);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(hub.failed()) << hub.failure();
}

std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& value : out) value = normal(random);
  return out;
}

Tensor tensor_of(const Shape& shape, unsigned seed) {
  return tensor_from(host_device(), shape, random_values(shape.numel(), seed).data());
}

// Rows of one rank of a map [N,H,W,C].
Tensor rows_of(Exec& ex, const Tensor& whole, int64_t begin, int64_t rows) {
  const Tensor part = whole.narrow(1, begin, rows);
  const Tensor own = ex.alloc(part.shape(), whole.dtype());
  copy_into(ex, part, own);
  return own;
}

std::pair<Conv, Norm> layers(int64_t channels) {
  Conv conv(channels, channels);
  conv.weight = Weight(tensor_of({channels, channels, 3, 3}, 4));
  conv.bias = tensor_of({channels}, 5);
  Norm norm(channels);
  norm.gain = tensor_of({channels}, 6);
  norm.bias = tensor_of({channels}, 7);
  return {std::move(conv), norm};
}

void expect_rows(const Tensor& got, const Tensor& whole, int64_t begin, double tolerance,
                 const std::string& what) {
  Arena arena(host_device());
  Exec ex(arena);
  const Tensor want = rows_of(ex, whole, begin, got.dim(1));
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const std::vector<float> a = to_floats(host_device(), got), b = to_floats(host_device(), want);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << what << " at " << i;
}

TEST(RowSplits, CoverTheRowsAndKnowEverySize) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (const int64_t height : {8, 9, 16, 17, 40, 41, 63})
      for (const int64_t unit : {1, 4, 8}) {
        if ((height + unit - 1) / unit < ranks) continue;
        int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          SharedHub hub(std::vector<std::string>(static_cast<size_t>(ranks), "cpu"), {});
          HubRanks link(hub, rank);
          const RowSplit split(link, height, 24, unit, 3);
          EXPECT_EQ(split.begin(), next);
          EXPECT_EQ(split.begin() % unit, 0);
          EXPECT_GT(split.rows(), 0);
          next += split.rows();
          EXPECT_EQ(split.pixels_like(split.rows() * 8 * 24 * 8).size(), static_cast<size_t>(ranks));
          EXPECT_THROW(split.pixels_like(1'000'003), InternalError);
        }
        EXPECT_EQ(next, height);
      }
  SharedHub hub({"cpu", "cpu", "cpu"}, {});
  HubRanks link(hub, 0);
  EXPECT_THROW(RowSplit(link, 16, 16, 8, 0), UsageError) << "two units for three ranks";
  EXPECT_THROW(RowSplit(link, 17, 1, 8, 0), UsageError) << "the last rank's one row is one at every size";
}

// Every convolution that models have, group norms and gathered pixels, each rank against its rows of the
// whole.
TEST(RowSplits, LayersGiveTheRowsOfTheWholeMap) {
  for (const int ranks : {1, 2, 3, 4})
    for (const int64_t height : {16, 17, 30}) {
      const int64_t width = 11, channels = 8, images = 2;
      const Tensor whole = tensor_of({images, height, width, channels}, 3);
      const auto [conv, norm] = layers(channels);
      const ConvArgs plain{.pad = Padding::same(1)}, half{.stride = 2, .pad = Padding::same(1)},
          twice{.pad = Padding::same(1), .upsample2x = true};
      Arena arena(host_device());
      Exec ex(arena);
      const Tensor want_plain = conv2d(ex, whole, conv, plain), want_half = conv2d(ex, whole, conv, half),
                   want_twice = conv2d(ex, whole, conv, twice),
                   want_norm = group_norm_silu(ex, whole, {}, norm, 4, DType::kF32);
      run_ranks(ranks, [&](HubRanks& link) {
        const RowSplit split(link, height, width, 2, 1);
        const RowScope scope(&split);
        Arena own_arena(host_device());
        Exec own(own_arena);
        const auto [conv, norm] = layers(channels);  // a weight is laid out when it is first used
        const int64_t begin = split.begin();
        const Tensor x = rows_of(own, whole, begin, split.rows());
        const std::string what = concat(ranks, " ranks, ", height, " rows");
        // Sums of 72 products of unit variance: an order of its own costs some 72 half units of 2^-23.
        expect_rows(conv2d(own, x, conv, plain), want_plain, begin, 1e-3, what + ", conv");
        expect_rows(conv2d(own, x, conv, half), want_half, begin / 2, 1e-3, what + ", stride 2");
        expect_rows(conv2d(own, x, conv, twice), want_twice, 2 * begin, 1e-3, what + ", upsampled");
        expect_rows(group_norm_silu(own, x, {}, norm, 4, DType::kF32), want_norm, begin, 1e-4,
                    what + ", norm");
        const Tensor pixels = gather_pixels(own, split, x.reshape({images, split.rows() * width, channels}));
        expect_rows(pixels.reshape(whole.shape()), whole, 0, 0, what + ", gathered");
      });
    }
}

GenerateRequest request(int width = 128, int height = 128) {
  GenerateRequest request;
  request.prompt = "a red apple";
  request.negative_prompt = "a car";
  request.width = width;
  request.height = height;
  request.steps = 2;
  request.seed = 3;
  return request;
}

LoadOptions rows_of_demo(int ranks) {
  LoadOptions options{.model = kModel, .devices = "cpu", .split = "rows", .dtype = "f32"};
  for (int i = 1; i < ranks; ++i) options.devices += ",cpu";
  return options;
}

TEST(DividedRows, DrawWhatOneDeviceDraws) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  const std::pair<int, int> sizes[] = {{128, 128}, {72, 136}, {96, 200}};
  for (const int ranks : {2, 3, 4}) {
    MultiPipeline together = MultiPipeline::load(rows_of_demo(ranks));
    ASSERT_EQ(together.drawers().size(), 1u);
    for (const auto& [width, height] : sizes)
      expect_alike(together.generate(request(width, height)), alone.generate(request(width, height)),
                   concat(ranks, " ranks, ", width, " x ", height));
  }
}

TEST(DividedRows, ByEveryWayThatGoes) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  MultiPipeline together = MultiPipeline::load(rows_of_demo(2));
  const auto folder = std::filesystem::temp_directory_path() / ("rocm_sd_rows_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto check = [&](const std::string& what, const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest r = request(64, 128);
    change(r);
    expect_alike(together.generate(r), alone.generate(r), what);
  };
  check("batch", [](GenerateRequest& r) { r.batch = 2; });
  check("no guidance", [](GenerateRequest& r) { r.cfg_scale = 1; });
  check("perturbed", [](GenerateRequest& r) { r.pag_scale = 3; });
  check("Euler a", [](GenerateRequest& r) { r.sampler = "Euler a"; });
  check("inpainting", [](GenerateRequest& r) {
    r.init_image = r.mask = picture(64, 128);
    r.steps = 4;
  });
  check("deep cache",
        [](GenerateRequest& r) { r.savings.deep_cache = 2, r.savings.deep_cache_branch = 1, r.steps = 5; });
  check("sada", [](GenerateRequest& r) { r.savings.sada = true, r.sampler = "DPM++ 2M", r.steps = 16; });
  check("lora", [](GenerateRequest& r) {
    r.loras = {{.file = kExamples + "/dusk_lora.safetensors", .weight = 0.6}};
    r.lora_mode = "runtime";
  });
  const std::string net = testing_support::write_random_control(folder / "net.safetensors", kModel, 0.2f);
  check("control", [&](GenerateRequest& r) {
    r.controls = {{.model = net, .image = picture(64, 128), .strength = 0.8, .mode = "guess"}};
  });
  const std::string adapter =
      testing_support::write_random_ip_adapter(folder, kModel, ImageProjectionKind::kResampler);
  check("image prompt", [&](GenerateRequest& r) {
    r.ip_adapters = {{.model = adapter, .images = {picture(7, 5)}, .weight = 0.7}};
  });

  const auto refused = [&](const char* what, const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest r = request(64, 128);
    change(r);
    try {
      together.generate(r);
      ADD_FAILURE() << what;
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(), HasSubstr(what));
    }
  };
  refused("tile-size", [](GenerateRequest& r) { r.tile_size = 64; });
  refused("freeu", [](GenerateRequest& r) { r.freeu = {1.2, 1.3, 0.9, 0.8}; });
  refused("T2I-Adapters", [](GenerateRequest& r) {
    r.controls = {{.model = kExamples + "/canny_adapter", .image = picture(64, 128)}};
  });
  refused("control-mask", [&](GenerateRequest& r) {
    r.controls = {{.model = net, .image = picture(64, 128), .mask = picture(64, 128)}};
  });
  refused("ip-mask", [&](GenerateRequest& r) {
    r.ip_adapters = {{.model = adapter, .images = {picture(7, 5)}, .masks = {picture(8, 8)}}};
  });
  refused("cannot divide", [](GenerateRequest& r) { r.height = 8; });
  std::filesystem::remove_all(folder);
}

TEST(DividedRows, WithGuidanceDividedToo) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  LoadOptions options = rows_of_demo(4);
  options.split = "guidance-rows";
  MultiPipeline together = MultiPipeline::load(options);
  ASSERT_EQ(together.drawers().size(), 1u);
  EXPECT_EQ(together.drawers()[0].devices, "cpu+cpu+cpu+cpu");
  const auto check = [&](const std::string& what, const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest r = request(72, 136);
    change(r);
    expect_alike(together.generate(r), alone.generate(r), what);
  };
  check("plain", [](GenerateRequest&) {});
  check("batch", [](GenerateRequest& r) { r.batch = 2; });
  check("three predictions", [](GenerateRequest& r) { r.pag_scale = 3; });
  check("limited", [](GenerateRequest& r) { r.guidance_start = 0.6; });
  check("sada and deep cache", [](GenerateRequest& r) {
    r.savings.sada = true, r.savings.deep_cache = 2, r.sampler = "Euler", r.steps = 12;
  });
  check("inpainting", [](GenerateRequest& r) {
    r.init_image = r.mask = picture(72, 136);
    r.steps = 4;
  });
  GenerateRequest unguided = request();
  unguided.cfg_scale = 1;
  EXPECT_THROW(together.generate(unguided), UsageError);
  for (const char* devices : {"cpu,cpu", "cpu,cpu,cpu", "cpu,cpu,cpu,cpu,cpu"}) {
    options.devices = devices;
    EXPECT_THROW(MultiPipeline::load(options), UsageError) << devices;
  }
}

double mean_distance(const GenerateResult& got, const GenerateResult& want) {
  const auto &a = got.pictures.at(0).image.rgb, &b = want.pictures.at(0).image.rgb;
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(int{a[i]} - int{b[i]});
  return sum / static_cast<double>(a.size());
}

// Exact while all calls are; later near the exact image, the nearer the more calls are exact; and again the
// same for the same seed: nothing of the image before is read.
TEST(DividedRows, DisplacedOnesAreNearTheExactImage) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  GenerateRequest r = request(96, 128);
  r.steps = 12;
  r.cfg_scale = 4;
  const GenerateResult want = alone.generate(r);
  GenerateRequest other = r;
  other.prompt = "a blue car";
  const double unlike = mean_distance(alone.generate(other), want);
  std::vector<double> distances;
  for (const char* calls : {"12", "8", "2"}) {
    LoadOptions options = rows_of_demo(3);
    options.split = concat("displaced:", calls);
    MultiPipeline together = MultiPipeline::load(options);
    const GenerateResult got = together.generate(r);
    distances.push_back(mean_distance(got, want));
    together.generate(other);
    EXPECT_EQ(together.generate(r).pictures[0].image.rgb, got.pictures[0].image.rgb) << calls;
    if (std::string(calls) == "12") expect_alike(got, want, "all calls exact");
  }
  EXPECT_GT(distances[1], 0.01) << "some calls read what was there before";
  EXPECT_LT(distances[1], distances[2]);
  EXPECT_LT(distances[2], unlike / 4);
}

// Stale rows of a half of guidance: what two ranks with all of guidance draw, but for rounding.
TEST(DividedRows, DisplacedOnesOfHalvesOfGuidance) {
  GenerateRequest r = request(96, 128);
  r.steps = 6;
  r.cfg_scale = 4;
  const auto drawn = [&](int devices, const char* split) {
    LoadOptions options = rows_of_demo(devices);
    options.split = split;
    return MultiPipeline::load(options).generate(r);
  };
  const GenerateResult exact = drawn(2, "rows"), halves = drawn(4, "guidance-displaced:2");
  expect_alike(halves, drawn(2, "displaced:2"), "halves of guidance");
  EXPECT_GT(mean_distance(halves, exact), 0.01) << "some calls read what was there before";
}

TEST(DividedRows, TheDistanceOfDisplacedOnesIsTold) {
  LoadOptions options = rows_of_demo(2);
  options.split = "displaced:1:check";
  MultiPipeline together = MultiPipeline::load(options);
  GenerateRequest r = request(64, 64);
  r.steps = 4;
  const GenerateResult got = together.generate(r);
  ASSERT_FALSE(got.warnings.empty());
  EXPECT_THAT(got.warnings.back(), HasSubstr("dB"));
  options.split = "displaced:4:check";
  const GenerateResult same = MultiPipeline::load(options).generate(r);
  EXPECT_THAT(same.warnings.back(), HasSubstr("the exact image"));
  EXPECT_NE(same.warnings.back(), got.warnings.back());
  r.savings.deep_cache = 2;
  EXPECT_THROW(together.generate(r), UsageError) << "whose calls would not match those of the exact image";
}

TEST(DividedRows, FaultsOnEitherRank) {
  for (const int rank : {0, 1})
    for (const int copy : {1, 40, 200}) {
      FailingDevice devices[] = {FailingDevice("left"), FailingDevice("right")};
      MultiPipeline together =
          load_multi_pipeline(rows_of_demo(2), {{"left", &devices[0], 1}, {"right", &devices[1], 1}});
      devices[rank].fail_copy(copy);
      try {
        together.generate(request(64, 64));
        ADD_FAILURE();
      } catch (const DeviceError& e) {
        EXPECT_THAT(e.what(), HasSubstr(rank ? "rank 1 (right)" : "rank 0 (left)"));
      }
    }
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  const GenerateResult want = alone.generate(request(64, 64));
  FailingDevice devices[] = {FailingDevice("left"), FailingDevice("right")};
  MultiPipeline together =
      load_multi_pipeline(rows_of_demo(2), {{"left", &devices[0], 1}, {"right", &devices[1], 1}});
  together.generate(request(64, 64));
  devices[1].run_out_of_memory(60);
  expect_alike(together.generate(request(64, 64)), want, "begun anew");
}

}  // namespace
}  // namespace rocm_sd
