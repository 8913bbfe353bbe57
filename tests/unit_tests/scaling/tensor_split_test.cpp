// Shares of every attention and feed-forward over ranks: the pieces by themselves, UNets of random weights
// with heads that do not divide evenly, and images of the demo model, against one rank.
#include "models/tensor_split.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <thread>

#include "models/unet.hpp"
#include "rocm_sd/multi.hpp"
#include "scaling/load_multi.hpp"
#include "scaling/shared_hub.hpp"
#include "support/failing_device.hpp"
#include "support/random_control.hpp"
#include "support/random_ip_adapter.hpp"
#include "support/random_source.hpp"
#include "support/split_testing.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;
using testing_support::expect_alike;
using testing_support::FailingDevice;
using testing_support::picture;
using testing_support::random_tensor;
using testing_support::RandomSource;
using testing_support::to_doubles;

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
const std::string kExamples = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo_examples";

TEST(TensorShares, CoverThePiecesInOrder) {
  for (int count = 1; count <= 8; ++count)
    for (int64_t pieces = 1; pieces <= 41; ++pieces) {
      int64_t next = 0, before = pieces;
      int with = 0;
      for (int rank = 0; rank < count; ++rank) {
        const CutRange own = share_of(pieces, {rank, count});
        EXPECT_EQ(own.begin, next) << pieces << " over " << count;
        EXPECT_LE(own.size(), (pieces + count - 1) / count);
        EXPECT_GE(own.size(), pieces / count);
        with += own.size() > 0;
        EXPECT_TRUE(pieces >= count || own.size() <= before) << "the first ranks have them";
        before = own.size();
        next = own.end;
      }
      EXPECT_EQ(next, pieces);
      EXPECT_EQ(with, ranks_with(pieces, {0, count}));
    }
  for (int count = 1; count <= 8; ++count)
    for (const int64_t channels : {1, 8, 24, 64, 100, 384, 512, 1280, 2560, 5120}) {
      int64_t next = 0;
      int with = 0;
      for (int rank = 0; rank < count; ++rank) {
        const CutRange own = share_of_channels(channels, {rank, count});
        EXPECT_EQ(own.begin, next);
        EXPECT_TRUE(channels % 8 != 0 || own.size() % 8 == 0) << channels << " over " << count;
        with += own.size() > 0;
        next = own.end;
      }
      EXPECT_EQ(next, channels);
      EXPECT_EQ(with, ranks_with_channels(channels, {0, count}));
    }
}

// Any elements of any rows and columns, as one reads them of the whole tensor.
TEST(TensorShares, ReadTheirPartsOfATensor) {
  const RandomSource source;
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 200; ++round) {
    const int64_t rows = 1 + below(40), columns = round % 4 ? 1 + below(40) : 1;
    Cut cut{columns > 1 ? Shape{rows, columns} : Shape{rows}, {}, {0, columns}};
    for (int64_t row = below(rows); row < rows;) {
      const int64_t end = row + 1 + below(rows - row);
      cut.rows.push_back({row, end});
      row = end + below(5);
    }
    if (columns > 1 && round % 3) {
      cut.columns.begin = below(columns);
      cut.columns.end = cut.columns.begin + 1 + below(columns - cut.columns.begin);
    }
    std::vector<float> whole(static_cast<size_t>(rows * columns)), want;
    source.read("t.weight", cut.whole, DType::kF32, whole.data());
    for (const CutRange& range : cut.rows)
      for (int64_t row = range.begin; row < range.end; ++row)
        for (int64_t column = cut.columns.begin; column < cut.columns.end; ++column)
          want.push_back(whole[static_cast<size_t>(row * columns + column)]);
    const auto all = static_cast<int64_t>(want.size());
    ASSERT_EQ(all, cut.row_count() * cut.columns.size());
    const int64_t begin = below(all), count = 1 + below(all - begin);
    std::vector<float> got(static_cast<size_t>(count), NAN);
    read_cut(source, "t.weight", cut, begin, count, DType::kF32, got.data());
    EXPECT_EQ(got, std::vector<float>(want.begin() + begin, want.begin() + begin + count)) << round;
    const std::vector<float> of_rows = cut_rows(whole, cut);
    EXPECT_EQ(cut_columns(of_rows, cut), want) << round;
  }
  EXPECT_THROW(
      [&] {
        float value = 0;
        read_cut(source, "t.weight", {{4, 4}, {{0, 2}}, {0, 4}}, 8, 1, DType::kF32, &value);
      }(),
      InternalError);
}

UNetConfig config_of(int64_t heads, int64_t depth, bool only_cross) {
  const int64_t width = heads * depth;
  UNetConfig config;
  config.norm_groups = 1;
  config.time_width = 32;
  config.down = {{.channels = width,
                  .resnets = 1,
                  .transformer_layers = {2},
                  .heads = heads,
                  .context_width = 12,
                  .only_cross_attention = only_cross}};
  config.up = {
      {.channels = width, .resnets = 2, .transformer_layers = {1, 1}, .heads = heads, .context_width = 12}};
  config.down[0].resamples = config.up[0].resamples = false;
  config.mid = UNetMidConfig{{1}, heads, 12};
  return config;
}

struct Prediction {
  std::vector<double> values;
  int64_t parameters = 0;
  std::set<std::string> names;
};

Prediction predict(const UNetConfig& config, DType dtype, Ranks* ranks, const WeightFormat& weights = {}) {
  const RandomSource source;
  UNet unet = UNet::load(host_device(), config, source, dtype, weights, {},
                         ranks ? TensorShare{ranks->rank(), ranks->count()} : TensorShare{});
  testing_support::TestExec test;
  const TextCache cache = unet.make_text_cache(host_device(), 2, 5);
  unet.prepare_text(test.ex, random_tensor({2, 5, 12}, DType::kF32, 2), cache);
  const Tensor shifts = unet.time_shifts(test.ex, {.timestep = random_tensor({2}, DType::kF32, 3, 300)});
  Prediction out{
      to_doubles(unet(test.ex, random_tensor({2, 6, 5, 4}, DType::kF32, 1), shifts, cache, {.ranks = ranks})),
      count_parameters([&](Visitor& v) { unet.visit(v); }), source.read_names};
  out.names.insert(source.ignored.begin(), source.ignored.end());
  return out;
}

template <class Body>
void run_ranks(int count, const Body& body) {
  SharedHub hub(std::vector<std::string>(static_cast<size_t>(count), "cpu"), {});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      HubRanks ranks(hub, rank, {Division::kTensors});
      ranks.begin();
      body(ranks);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(hub.failed()) << hub.failure();
}

// Heads that divide evenly, unevenly, and of which some ranks have none.
TEST(TensorSplit, PredictsWhatOneRankPredicts) {
  for (const int64_t heads : {1, 2, 3, 5, 10, 20})
    for (const int count : {2, 3, 4}) {
      const UNetConfig config = config_of(heads, heads > 5 ? 4 : 8, heads == 3);
      const Prediction want = predict(config, DType::kF32, nullptr);
      double largest = 0;
      for (const double value : want.values) largest = std::max(largest, std::abs(value));
      std::vector<Prediction> got(static_cast<size_t>(count));
      run_ranks(count, [&](HubRanks& ranks) {
        got[static_cast<size_t>(ranks.rank())] = predict(config, DType::kF32, &ranks);
      });
      const std::string what = concat(heads, " heads on ", count, " ranks");
      int64_t shares = 0;
      for (const Prediction& rank : got) {
        EXPECT_EQ(rank.values, got[0].values) << what << ": all ranks have the same bits";
        // Some 30 layers, each with sums of up to 320 products in another order.
        testing_support::expect_near(rank.values, want.values, 1e-4 * largest, what);
        EXPECT_EQ(rank.names, want.names) << what << ": every tensor is read or left to others";
        EXPECT_LE(rank.parameters, want.parameters);
        shares += rank.parameters;
      }
      EXPECT_TRUE(heads < count || got.back().parameters < want.parameters) << what;
      EXPECT_LT(shares, count * want.parameters) << what;
    }
}

TEST(TensorSplit, SumsPartsInEveryType) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (const int parts : {1, 2, 3, 4}) {
      const Shape shape{2, 7, 24};
      std::vector<double> want;
      for (int rank = 0; rank < parts; ++rank) {
        const std::vector<double> part =
            to_doubles(random_tensor(shape, dtype, static_cast<uint64_t>(rank + 1)));
        want.resize(part.size());
        for (size_t i = 0; i < part.size(); ++i) want[i] += part[i];
      }
      std::vector<std::vector<double>> got(4);
      run_ranks(4, [&](HubRanks& ranks) {
        testing_support::TestExec test;
        const int rank = ranks.rank();
        const Tensor own =
            rank < parts ? random_tensor(shape, dtype, static_cast<uint64_t>(rank + 1)) : Tensor();
        got[static_cast<size_t>(rank)] = to_doubles(sum_of_ranks(test.ex, ranks, own, parts, shape, dtype));
        EXPECT_THROW(sum_of_ranks(test.ex, ranks, own, 0, shape, dtype), InternalError);
      });
      for (const std::vector<double>& sum : got) {
        EXPECT_EQ(sum, got[0]);
        // Each addition rounds sums of a few units once.
        testing_support::expect_near(sum, want, parts * 16 * testing_support::unit_roundoff(dtype));
      }
    }
}

LoadOptions on_ranks(int ranks, const std::string& weights = "auto") {
  LoadOptions options = testing_support::demo_on_ranks(ranks, "tensor");
  options.weights = weights;
  return options;
}
GenerateRequest request() { return testing_support::odd_request(); }

TEST(TensorSplit, DrawsWhatOneDeviceDraws) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("rocm_sd_tensors_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string net = testing_support::write_random_control(folder / "net.safetensors", kModel, 0.2f);
  const std::string adapter =
      testing_support::write_random_ip_adapter(folder, kModel, ImageProjectionKind::kResampler);
  std::vector<std::pair<std::string, GenerateRequest>> cases;
  const auto add = [&](const std::string& what, const std::function<void(GenerateRequest&)>& change) {
    cases.emplace_back(what, request());
    change(cases.back().second);
  };
  add("plain", [](GenerateRequest&) {});
  add("without guidance, a batch", [](GenerateRequest& r) { r.cfg_scale = 1, r.batch = 3; });
  add("perturbed", [](GenerateRequest& r) { r.pag_scale = 3, r.batch = 2; });
  add("freeu", [](GenerateRequest& r) { r.freeu = {1.2, 1.3, 0.9, 0.8}; });
  add("edited, noisy",
      [](GenerateRequest& r) { r.prompt = "a [red apple:blue car:0.5]", r.sampler = "Euler a"; });
  add("tiles", [](GenerateRequest& r) { r.width = 96, r.tile_size = 64, r.tile_batch = 2; });
  add("seamless", [](GenerateRequest& r) { r.tiling_x = true; });
  add("inpainting", [](GenerateRequest& r) { r.init_image = picture(72, 64), r.mask = picture(72, 64); });
  add("merged lora",
      [](GenerateRequest& r) { r.loras = {{.file = kExamples + "/dusk_lora.safetensors", .weight = 0.8}}; });
  add("run-time lora", [](GenerateRequest& r) {
    r.loras = {{.file = kExamples + "/dusk_lora.safetensors", .weight = 0.6}};
    r.lora_mode = "runtime";
  });
  add("control", [&](GenerateRequest& r) {
    r.controls = {{.model = net, .image = picture(72, 64), .mask = picture(72, 64), .strength = 0.8}};
  });
  add("T2I-Adapter", [](GenerateRequest& r) {
    r.controls = {{.model = kExamples + "/canny_adapter", .image = picture(72, 64)}};
  });
  add("image prompt", [&](GenerateRequest& r) {
    r.ip_adapters = {{.model = adapter, .images = {picture(7, 5)}, .masks = {picture(8, 8)}, .weight = 0.7}};
  });
  add("deep cache",
      [](GenerateRequest& r) { r.savings.deep_cache = 2, r.savings.deep_cache_branch = 1, r.steps = 5; });
  add("t-gate", [](GenerateRequest& r) { r.savings.t_gate = 2, r.steps = 5; });
  add("sada", [](GenerateRequest& r) { r.savings.sada = true, r.sampler = "DPM++ 2M", r.steps = 16; });
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  std::vector<GenerateResult> want;
  for (const auto& [what, r] : cases) want.push_back(alone.generate(r));
  for (const int ranks : {2, 3}) {
    MultiPipeline together = MultiPipeline::load(on_ranks(ranks));
    ASSERT_EQ(together.drawers().size(), 1u);
    for (size_t i = 0; i < cases.size(); ++i)
      expect_alike(together.generate(cases[i].second), want[i], concat(ranks, " ranks, ", cases[i].first));
  }
  std::filesystem::remove_all(folder);
}

// Scales are those of the columns that a rank has: weights in 8 bits are not rounded to the same values as on
// one rank.
TEST(TensorSplit, GoesWithWeightsIn8Bits) {
  GenerateRequest r = request();
  r.steps = 4;
  r.cfg_scale = 4;
  LoadOptions options{.model = kModel, .dtype = "f32"};
  options.weights = "int8";
  const Image want = Pipeline::load(options).generate(r).pictures.at(0).image;
  MultiPipeline together = MultiPipeline::load(on_ranks(2, "int8"));
  const Image got = together.generate(r).pictures.at(0).image;
  double squares = 0;
  for (size_t i = 0; i < want.rgb.size(); ++i) squares += std::pow(double(got.rgb[i]) - want.rgb[i], 2);
  EXPECT_GE(10 * std::log10(255.0 * 255.0 * static_cast<double>(want.rgb.size()) / squares), 35);
}

TEST(TensorSplit, EachRankHasItsShareOfTheWeights) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  const MemoryPlan whole = alone.plan(request());
  MultiPipeline together = MultiPipeline::load(on_ranks(4));
  const MemoryPlan plan = together.plans(request()).at(0).plan;
  ASSERT_EQ(plan.devices.size(), 4u);
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_LT(plan.devices[rank].weights, whole.weights);
    EXPECT_LE(plan.devices[rank].total(), plan.total());
    EXPECT_THAT(plan.devices[rank].parts,
                HasSubstr(concat("share ", rank + 1, " of 4 of the UNet's attention")));
  }
}

TEST(TensorSplit, RefusesWhatReadsAllHeads) {
  MultiPipeline together = MultiPipeline::load(on_ranks(2));
  GenerateRequest r = request();
  r.sag_scale = 1;
  try {
    together.generate(r);
    ADD_FAILURE();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("sag-scale: not with a picture that several devices draw together"));
    EXPECT_THAT(e.what(), HasSubstr("tensor"));
  }
  EXPECT_EQ(together.generate(request()).pictures.size(), 1u) << "usable after a bad request";
  for (const char* devices : {"cpu", "auto"}) {
    LoadOptions options = on_ranks(1);
    options.devices = devices;
    EXPECT_THROW(MultiPipeline::load(options), UsageError) << devices;
  }
}

TEST(TensorSplit, FaultsOnEitherRank) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  const GenerateResult want = alone.generate(request());
  for (const int rank : {0, 1})
    for (const int copy : {1, 2}) {
      FailingDevice devices[] = {FailingDevice("left"), FailingDevice("right")};
      MultiPipeline together =
          load_multi_pipeline(on_ranks(2), {{"left", &devices[0], 1}, {"right", &devices[1], 1}});
      devices[rank].fail_copy(copy);
      try {
        together.generate(request());
        ADD_FAILURE();
      } catch (const DeviceError& e) {
        EXPECT_THAT(e.what(), HasSubstr(rank ? "rank 1 (right)" : "rank 0 (left)"));
      }
    }
  FailingDevice devices[] = {FailingDevice("left"), FailingDevice("right")};
  MultiPipeline together =
      load_multi_pipeline(on_ranks(2), {{"left", &devices[0], 1}, {"right", &devices[1], 1}});
  together.generate(request());
  devices[1].run_out_of_memory(2);
  expect_alike(together.generate(request()), want, "begun anew");
}

}  // namespace
}  // namespace rocm_sd
