// The precision of every layer of every model, against the listing of tests/data/precisions.txt; that no row
// of the table is idle; what the loader makes of a row; patterns; and the page's table.
#include "models/precision.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "models/clip.hpp"
#include "models/controlnet.hpp"
#include "models/t2i_adapter.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"

namespace rocm_sd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(ROCM_SD_SOURCE_DIR) + "/" + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Multiplies bf16 as wide models do, whatever the model.
struct ForcedWide {
  ForcedWide() { setenv("ROCM_SD_BF16", "products", 1); }
  ~ForcedWide() { unsetenv("ROCM_SD_BF16"); }
};

UNetConfig demo() {
  return unet_config(nlohmann::json::parse(text_of("models/demo/unet/config.json")), "demo");
}

// Blocks at either end that attend to the text alone.
UNetConfig only_cross(int64_t width) {
  UNetConfig config;
  config.norm_groups = 4;
  config.time_width = 32;
  config.down = {{.channels = width,
                  .resnets = 1,
                  .transformer_layers = {1},
                  .heads = 2,
                  .context_width = 12,
                  .only_cross_attention = true},
                 {.channels = 2 * width,
                  .resnets = 2,
                  .transformer_layers = {1, 2},
                  .heads = 2,
                  .context_width = 12,
                  .resamples = false}};
  config.up = {
      {.channels = 2 * width, .resnets = 3, .transformer_layers = {1, 1, 1}, .heads = 2, .context_width = 12},
      {.channels = width,
       .resnets = 2,
       .transformer_layers = {1, 1},
       .heads = 2,
       .context_width = 12,
       .only_cross_attention = true,
       .resamples = false}};
  config.mid = UNetMidConfig{{2}, 4, 12};
  return config;
}

ControlNetConfig control_of(UNetConfig trunk) {
  trunk.up.clear();
  ControlNetConfig out;
  out.trunk = trunk;
  return out;
}

struct Known {
  std::string name;
  std::vector<LayerListing> layers;
  std::vector<PrecisionRow> rows;
};

template <class Model>
Known known(std::string name, const Model& model) {
  return {std::move(name), list_precisions(model), precisions_of(model)};
}

std::vector<Known> known_models() {
  std::vector<Known> out = {
      known("unet sd1", UNet(configs::unet_sd1())),
      known("unet sd2", UNet(configs::unet_sd2())),
      known("unet sdxl", UNet(configs::unet_sdxl())),
      known("unet sdxl refiner", UNet(configs::unet_sdxl_refiner())),
      known("unet demo", UNet(demo())),
      known("unet only_cross narrow", UNet(only_cross(8))),
      known("unet only_cross wide", UNet(only_cross(128))),
      known("controlnet sd1", ControlNet(control_of(configs::unet_sd1()))),
      known("controlnet sdxl", ControlNet(control_of(configs::unet_sdxl()))),
      known("controlnet demo", ControlNet(control_of(demo()))),
  };
  {
    const ForcedWide wide;
    out.push_back(known("unet demo products", UNet(demo())));
    out.push_back(known("controlnet demo products", ControlNet(control_of(demo()))));
  }
  out.push_back(known("vae decoder", VaeDecoder(configs::vae_sd())));
  out.push_back(known("vae encoder", VaeEncoder(configs::vae_sd())));
  out.push_back(known("clip", ClipTextModel(configs::clip_l())));
  out.push_back(known("taesd decoder", TaesdDecoder(configs::taesd())));
  ControlNetConfig union_of_demo = control_of(demo());
  union_of_demo.mixer = ControlMixerConfig{};
  out.push_back(known("controlnet demo union", ControlNet(union_of_demo)));
  out.push_back(known("t2i adapter", T2iAdapter(T2iConfig{})));
  return out;
}

// By the names of the checkpoint; layers in the compute type that may be stored in 8 bits are left out.
std::string listing(const std::vector<Known>& models) {
  std::string out;
  for (const Known& model : models) {
    out += concat("[", model.name, "]\n");
    for (const LayerListing& layer : model.layers)
      for (const ParameterSlot::Part& part : layer.parts) {
        const auto& [precision, eight_bit] = layer.precision;
        if (precision == Precision::kCompute && eight_bit) continue;
        out += concat(part.name.substr(0, part.name.rfind('.')), " ", precision_name(precision),
                      eight_bit ? "\n" : " 16-bit\n");
      }
  }
  return out;
}

// The file was written before there was a table, from the layers themselves.
TEST(PrecisionTable, GivesEveryLayerOfEveryModelItsPrecision) {
  const std::string got = listing(known_models()), want = text_of("tests/data/precisions.txt");
  ASSERT_GT(want.size(), 10'000u);
  std::istringstream got_lines(got), want_lines(want);
  std::string a, b, model;
  while (std::getline(want_lines, b)) {
    if (b.starts_with("[")) model = b;
    ASSERT_TRUE(std::getline(got_lines, a)) << model << ": no line for " << b;
    ASSERT_EQ(a, b) << model;
  }
  EXPECT_FALSE(std::getline(got_lines, a)) << "beyond the listing: " << a;
}

// Rows that match no layer of a model of their network and width, and why that is right.
const std::set<std::pair<std::string, std::string>> kIdle = {
    // The finest resolution has no transformers.
    {"unet sdxl", "down_blocks.0.*.ff.net.0.proj"},
    {"unet sdxl", "up_blocks.last.*.ff.net.0.proj"},
    {"unet sdxl", "up_blocks.last.*.proj_in"},
    {"unet sdxl", "up_blocks.last.*.proj_out"},
    {"unet sdxl refiner", "down_blocks.0.*.ff.net.0.proj"},
    {"unet sdxl refiner", "up_blocks.last.*.ff.net.0.proj"},
    {"unet sdxl refiner", "up_blocks.last.*.proj_in"},
    {"unet sdxl refiner", "up_blocks.last.*.proj_out"},
};

// Parts that some models lack: SDXL's added conditions, and what a union ControlNet has.
const std::set<std::string> kOptional = {"add_embedding", "control_add_embedding", "transformer_layes",
                                         "spatial_ch_projs"};

TEST(PrecisionTable, HasNoIdleRow) {
  std::map<std::string_view, int> matched;
  for (const PrecisionRow& row : precision_table()) matched[row.pattern] = 0;
  for (const Known& model : known_models()) {
    LayerPaths paths;
    for (const LayerListing& layer : model.layers) paths.add(layer.layer);
    const bool is_control = model.name.starts_with("controlnet");
    for (const PrecisionRow& row : model.rows) {
      const PathPattern pattern(row.pattern);
      const auto count = std::ranges::count_if(
          model.layers, [&](const LayerListing& layer) { return pattern.matches(layer.layer, paths); });
      matched[row.pattern] += static_cast<int>(count);
      if (row.network != (is_control ? Network::kControlNet : Network::kUnet)) continue;
      const std::string part(row.pattern.substr(0, row.pattern.find('.')));
      const bool absent = kOptional.contains(part) && !paths.has(part);
      EXPECT_EQ(count == 0, absent || kIdle.contains({model.name, std::string(row.pattern)}))
          << model.name << ": " << row.pattern << " matches " << count << " layers";
    }
  }
  for (const auto& [pattern, count] : matched) EXPECT_GT(count, 0) << pattern;
}

TEST(PrecisionTable, IsThatOfThePage) {
  const auto word = [](Widths widths) {
    return widths == Widths::kAll ? "all" : widths == Widths::kWide ? "wide" : "narrow";
  };
  const std::string page = text_of("docs/architecture.md");
  for (const PrecisionRow& row : precision_table()) {
    if (row.network == Network::kVae) continue;  // in 8 bits only: eight-bit-weights.md
    const std::string line = concat("| `", row.pattern, "` | ", word(row.widths), " | `",
                                    precision_name(row.precision), "` | ", row.reason, " |\n");
    EXPECT_THAT(page, HasSubstr(line));
  }
}

LayerPaths paths_of(const std::vector<std::string>& all) {
  LayerPaths out;
  for (const std::string& path : all) out.add(path);
  return out;
}

TEST(PathPattern, MatchesSegments) {
  const std::vector<std::string> all = {"conv",
                                        "up.0.conv",
                                        "up.2.conv",
                                        "up.10.conv",
                                        "up.10.attn1.to_kv",
                                        "up.10.attn1.out.0",
                                        "up.10.attn2.out.0",
                                        "up_2.conv"};
  const LayerPaths paths = paths_of(all);
  const auto matches = [&](const char* pattern) {
    std::vector<std::string> out;
    for (const std::string& path : all)
      if (PathPattern(pattern).matches(path, paths)) out.push_back(path);
    return out;
  };
  EXPECT_THAT(matches("conv"), ElementsAre("conv"));
  EXPECT_THAT(matches("*.conv"), ElementsAre("up.0.conv", "up.2.conv", "up.10.conv", "up_2.conv"));
  EXPECT_THAT(matches("up.*.conv"), ElementsAre("up.0.conv", "up.2.conv", "up.10.conv"));
  EXPECT_THAT(matches("up.last.conv"), ElementsAre("up.10.conv")) << "by number, not by text";
  EXPECT_THAT(matches("up.last.*"),
              ElementsAre("up.10.conv", "up.10.attn1.to_kv", "up.10.attn1.out.0", "up.10.attn2.out.0"));
  EXPECT_THAT(matches("*[to_kv].out.0"), ElementsAre("up.10.attn1.out.0"));
  EXPECT_THAT(matches("up.last.attn1[to_kv].out.last"), ElementsAre("up.10.attn1.out.0"));
  EXPECT_THAT(matches("*.out.0"), ElementsAre("up.10.attn1.out.0", "up.10.attn2.out.0"));
  EXPECT_THAT(matches("up"), ElementsAre());
  EXPECT_THAT(matches("up.*.0"), ElementsAre("up.10.attn1.out.0", "up.10.attn2.out.0"));
  EXPECT_THAT(matches("*"), ::testing::SizeIs(all.size()));
  EXPECT_THAT(matches("con"), ElementsAre());
}

TEST(PathPattern, RefusesWhatItCannotRead) {
  for (const char* bad : {"", "a..b", ".a", "a.", "[b]", "a[", "a]", "a[]", "a.[b]"})
    EXPECT_THROW(PathPattern{bad}, InternalError) << bad;
}

TEST(PrecisionRules, TheLastRowDecidesAndEightBitsAreForbiddenByAny) {
  const std::vector<PrecisionRow> rows = {
      {.pattern = "*", .precision = Precision::kSplit, .eight_bit = EightBit::kNever},
      {.pattern = "b.*", .precision = Precision::kHalf},
      {.pattern = "b.last", .precision = Precision::kFloat}};
  const PrecisionRules rules(rows, paths_of({"a", "b.0", "b.1", "c"}));
  const auto never = [](Precision precision) { return LayerPrecision{precision, false}; };
  EXPECT_EQ(rules.of("a"), never(Precision::kSplit));
  EXPECT_EQ(rules.of("b.0"), never(Precision::kHalf));
  EXPECT_EQ(rules.of("b.1"), never(Precision::kFloat));
  EXPECT_EQ(PrecisionRules({}, {}).of("a"), LayerPrecision());
}

// Zeros for every parameter, as quickly as can be.
class Zeros : public ParameterSource {
 public:
  std::string title() const override { return "zeros"; }
  bool has(const std::string&) const override { return true; }
  void read(const std::string&, const Shape& shape, DType dtype, void* dst) const override {
    std::memset(dst, 0, static_cast<size_t>(shape.numel()) * dtype_size(dtype));
  }
  void ignore(const std::string&) const override {}
};

struct Layers {
  Conv plain{4, 4}, input{4, 4}, split{4, 4}, half{4, 4}, full{4, 4}, wide{4, 4};
  Embedding table{5, 4};
  Norm norm{4};
  void visit(Visitor& v) {
    v("plain", plain);
    v("input", input);
    v("split", split);
    v("half", half);
    v("full", full);
    v("wide", wide);
    v("table", table);
    v("norm", norm);
  }
  std::vector<PrecisionRow> precisions() const {
    return {{.pattern = "input", .precision = Precision::kSplitInput},
            {.pattern = "split", .precision = Precision::kSplit},
            {.pattern = "half", .precision = Precision::kHalf},
            {.pattern = "full", .precision = Precision::kFloat},
            {.pattern = "wide", .precision = Precision::kSplit, .eight_bit = EightBit::kNever}};
  }
};

// Of plain, input, split, half, full, wide: the stored type, as a multiple of the layer's size.
std::vector<std::string> stored_as(DType compute, const WeightFormat& format) {
  Layers layers;
  load_parameters(layers, host_device(), Zeros(), compute, format);
  EXPECT_EQ(layers.norm.gain.dtype(), DType::kF32);
  EXPECT_EQ(layers.table.table.dtype(), format.short_for_f32 ? DType::kF16 : compute);
  std::vector<std::string> out;
  for (const Conv* layer :
       {&layers.plain, &layers.input, &layers.split, &layers.half, &layers.full, &layers.wide}) {
    const StoredWeight stored = layer->weight.stored();
    std::string text(dtype_name(stored.values.dtype()));
    if (stored.values.dtype() != layer->weight.dtype()) text += concat(">", layer->weight.dtype());
    if (parts_of(*layer) > 1) text += concat(" x", parts_of(*layer));
    out.push_back(text);
  }
  return out;
}

TEST(PrecisionRules, TheLoaderStoresWhatTheyAsk) {
  EXPECT_THAT(stored_as(DType::kF32, {}), ElementsAre("f32", "f32", "f32", "f32", "f32", "f32"));
  EXPECT_THAT(stored_as(DType::kF16, {}), ElementsAre("f16", "f16", "f16", "f16", "f16", "f16"));
  EXPECT_THAT(stored_as(DType::kBF16, {}),
              ElementsAre("bf16", "bf16 x2", "bf16 x3", "f16", "f32", "bf16 x3"));
  EXPECT_THAT(stored_as(DType::kF32, {.short_for_f32 = true}),
              ElementsAre("f16>f32", "f16>f32", "f16>f32", "f16>f32", "f32", "f16>f32"));
  EXPECT_THAT(stored_as(DType::kBF16, {.eight_bit = DType::kI8}),
              ElementsAre("i8>bf16", "i8>bf16", "i8>bf16", "i8>f16", "i8>f32", "bf16 x3"));
  EXPECT_THAT(stored_as(DType::kF16, {.eight_bit = DType::kI8}),
              ElementsAre("i8>f16", "i8>f16", "i8>f16", "i8>f16", "i8>f16", "f16"));
}

}  // namespace
}  // namespace rocm_sd
