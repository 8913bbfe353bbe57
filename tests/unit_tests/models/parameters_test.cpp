// Loading through the visitor: stacking, dtypes, missing keys, wrong shapes, unused halves.
#include "models/parameters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "models/offloaded_model.hpp"
#include "models/vae.hpp"
#include "support/guarded_device.hpp"
#include "support/random_source.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::RandomSource;

struct Layer {
  Norm norm{4};
  StackedLinear qkv{4, {{"to_q", 4}, {"to_k", 2}}, true};
  std::optional<Conv> conv;
  std::vector<Linear> list{Linear(4, 3), Linear(3, 2, false)};
  std::vector<PrecisionRow> rows;
  std::vector<PrecisionRow> precisions() const { return rows; }
  void visit(Visitor& v) {
    v("norm", norm);
    v("attn", qkv);
    v("conv", conv);
    v("list", list);
  }
};

TEST(Parameters, ListsNamesInOrder) {
  std::vector<std::string> names;
  for (const ParameterSlot::Part& part : list_parameters(Layer())) names.push_back(part.name);
  EXPECT_EQ(names, (std::vector<std::string>{"norm.weight", "norm.bias", "attn.to_q.weight",
                                             "attn.to_k.weight", "attn.to_q.bias", "attn.to_k.bias",
                                             "list.0.weight", "list.0.bias", "list.1.weight"}));
  EXPECT_EQ(count_parameters(Layer()), 4 + 4 + 16 + 8 + 4 + 2 + 12 + 3 + 6);
}

TEST(Parameters, LoadsAndStacks) {
  const RandomSource source;
  Layer layer;
  load_parameters(layer, host_device(), source, DType::kBF16);
  EXPECT_EQ(layer.norm.gain.dtype(), DType::kF32);
  EXPECT_EQ(layer.qkv.weight.dtype(), DType::kBF16);
  EXPECT_EQ(layer.qkv.weight.shape(), (Shape{6, 4}));
  EXPECT_EQ(layer.qkv.bias->shape(), (Shape{6}));
  std::vector<uint16_t> key(8);
  source.read("attn.to_k.weight", {2, 4}, DType::kBF16, key.data());
  const Tensor stacked = layer.qkv.weight.plain();
  EXPECT_TRUE(std::equal(key.begin(), key.end(), stacked.as<uint16_t>() + 16));
  EXPECT_FALSE(layer.list[1].bias.has_value());
}

// The values of one tensor are beyond f16, whose largest is 65504.
class LargeSource : public RandomSource {
 public:
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override {
    if (name != "list.0.weight") return RandomSource::read(name, shape, dtype, dst);
    const std::vector<float> values(static_cast<size_t>(shape.numel()), 1e5f);
    convert_elements(values.data(), DType::kF32, dst, dtype, shape.numel());
  }
};

TEST(Parameters, HoldsMatricesOfProductsInFloatInSixteenBits) {
  const LargeSource source;
  Layer layer;
  layer.rows = {{.pattern = "list.1", .precision = Precision::kFloat}};
  load_parameters(layer, host_device(), source, DType::kF32, WeightFormat{.short_for_f32 = true});
  EXPECT_EQ(layer.norm.gain.dtype(), DType::kF32);
  EXPECT_EQ(layer.qkv.weight.dtype(), DType::kF32);
  EXPECT_EQ(layer.qkv.weight.stored_as(), DType::kF16);
  EXPECT_EQ(layer.list[0].weight.dtype(), DType::kF32);
  EXPECT_EQ(layer.list[0].weight.stored_as(), DType::kBF16) << "beyond f16";
  EXPECT_FALSE(layer.list[1].weight.is_stored_short());
  const float large = to_floats(host_device(), layer.list[0].weight.plain())[0];
  EXPECT_NEAR(large, 1e5f, 1e5f / 256);
  // f16 rounds by at most 2^-11 of a value, a normal one.
  Layer exact;
  load_parameters(exact, host_device(), source, DType::kF32);
  const auto got = to_floats(host_device(), layer.qkv.weight.plain()),
             want = to_floats(host_device(), exact.qkv.weight.plain());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], std::abs(want[i]) / 2048 + 1e-7f);
  EXPECT_NE(got, want);
}

TEST(Parameters, HoldsMatricesInEightBits) {
  const RandomSource source;
  for (const auto& [format, type] : {std::pair{WeightFormat{DType::kI8}, DType::kI8},
                                     {WeightFormat{DType::kF8E4M3, true}, DType::kF8E4M3}}) {
    Layer layer, full;
    layer.conv.emplace(3, 5);
    full.conv.emplace(3, 5);
    layer.rows = {{.pattern = "list.0", .eight_bit = EightBit::kNever}};
    load_parameters(layer, host_device(), source, DType::kBF16, format);
    load_parameters(full, host_device(), source, DType::kF32);
    EXPECT_EQ(layer.norm.gain.dtype(), DType::kF32);
    EXPECT_EQ(layer.qkv.bias->dtype(), DType::kF32);
    EXPECT_EQ(layer.list[0].weight.stored().values.dtype(), DType::kBF16) << "not in 8 bits";
    EXPECT_EQ(resident_bytes([&](Visitor& v) { layer.visit(v); }),
              2u * 16 + (24 + 4 * 6) + 4 * 6 + (135 + 4 * 5) + 4 * 5 + 2 * 12 + 4 * 3 + (6 + 4 * 2));
    for (const auto& [held, want] :
         {std::pair{layer.qkv.weight, full.qkv.weight}, {layer.conv->weight, full.conv->weight}}) {
      EXPECT_EQ(held.stored().values.dtype(), type);
      EXPECT_EQ(held.dtype(), DType::kBF16);
      EXPECT_EQ(held.products(), format.products);
      EXPECT_EQ(held.stored().products, format.products);
      const auto got = to_floats(host_device(), held.plain()),
                 wanted = to_floats(host_device(), want.plain());
      float most = 0, worst = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        most = std::max(most, std::fabs(wanted[i]));
        worst = std::max(worst, std::fabs(got[i] - wanted[i]));
      }
      EXPECT_GT(worst, 0.0f);
      EXPECT_LT(worst, most / 12);
    }
  }
}

TEST(Parameters, OffloadsEightBitsAsTheyAre) {
  const RandomSource source;
  testing_support::GuardedDevice device;
  Layer layer;
  load_parameters(layer, device, source, DType::kBF16, WeightFormat{DType::kI8});
  const auto before = to_floats(device, layer.qkv.weight.plain());
  const VisitModel visit = [&](Visitor& v) { layer.visit(v); };
  const uint64_t bytes = resident_bytes(visit);
  OffloadedModel waiting(visit, device);
  waiting.offload();
  EXPECT_EQ(resident_bytes(visit), 0u);
  waiting.restore();
  EXPECT_EQ(resident_bytes(visit), bytes);
  EXPECT_EQ(layer.qkv.weight.stored().values.dtype(), DType::kI8);
  EXPECT_EQ(to_floats(device, layer.qkv.weight.plain()), before);
}

struct SplitLayers {
  Linear linear{40, 6};
  Conv conv{8, 6, 3};
  std::vector<PrecisionRow> rows;
  std::vector<PrecisionRow> precisions() const { return rows; }
  void visit(Visitor& v) {
    v("linear", linear);
    v("conv", conv);
  }
};

// The sizes of an output's terms sum up to less than 8 here. Of each a split layer loses less than 3 x 2^-17
// (two roundings, and low x low that is left out), in all below 2^-12; the same layer in plain bf16 loses
// more. In other types nothing is split.
TEST(Parameters, SplitLayersMultiplyAlmostInF32) {
  const RandomSource source;
  SplitLayers plain, wide, split;
  split.rows = {{.pattern = "*", .precision = Precision::kSplit}};
  load_parameters(plain, host_device(), source, DType::kBF16);
  load_parameters(split, host_device(), source, DType::kF32);
  EXPECT_FALSE(is_split(split.linear) || is_split(split.conv));
  load_parameters(wide, host_device(), source, DType::kF32);
  load_parameters(split, host_device(), source, DType::kBF16);
  EXPECT_TRUE(is_split(split.linear) && is_split(split.conv));
  EXPECT_EQ(split.conv.weight.shape(), (Shape{6, 24, 3, 3}));

  Arena arena(host_device());
  Exec ex(arena);
  const auto far = [&](const Tensor& got, const Tensor& want) {
    const std::vector<float> a = to_floats(host_device(), got), b = to_floats(host_device(), want);
    float most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
    return most;
  };
  const Tensor x = testing_support::random_tensor({7, 40}, DType::kF32, 5);
  const Tensor map = testing_support::random_tensor({1, 4, 5, 8}, DType::kF32, 6);
  const Epilogue to_float{.dtype = DType::kF32};
  const ConvArgs same{.pad = Padding::same(1)}, same_to_float{.pad = Padding::same(1), .epilogue = to_float};
  const Tensor want = linear(ex, x, wide.linear), want_map = conv2d(ex, map, wide.conv, same);
  const float bound = std::ldexp(1.0f, -12);
  EXPECT_LT(far(linear(ex, split_bf16(ex, x, 3), split.linear, to_float), want), bound);
  EXPECT_GT(far(linear(ex, cast(ex, x, DType::kBF16), plain.linear, to_float), want), bound);
  EXPECT_LT(far(conv2d(ex, split_bf16(ex, map, 3), split.conv, same_to_float), want_map), bound);
  EXPECT_GT(far(conv2d(ex, cast(ex, map, DType::kBF16), plain.conv, same_to_float), want_map), bound);
}

TEST(Parameters, PartsOfATensorAreCutFromTheWhole) {
  const RandomSource source;
  std::vector<float> whole(24), part(10);
  source.read("a.weight", {6, 4}, DType::kF32, whole.data());
  source.read_part("a.weight", {6, 4}, 7, 10, DType::kF32, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 7));
}

TEST(Parameters, OffloadAndComeBack) {
  const RandomSource source;
  testing_support::GuardedDevice device;
  Layer layer;
  layer.conv.emplace(3, 5);
  load_parameters(layer, device, source, DType::kBF16);
  const auto values = [&] { return to_floats(device, layer.qkv.weight.plain()); };
  const auto before = values();
  const Tensor x = tensor_from(device, {1, 4}, std::vector<float>(4, 1).data(), DType::kBF16);
  Arena arena(device);
  Exec ex(arena);
  const auto product = [&] { return to_floats(device, linear(ex, x, layer.qkv)); };
  const auto product_before = product();  // may put a packed layout in place of the plain one
  OffloadedModel waiting([&](Visitor& v) { layer.visit(v); }, device);
  const uint64_t bytes = waiting.bytes();
  EXPECT_EQ(bytes, resident_bytes([&](Visitor& v) { layer.visit(v); }));
  waiting.offload();
  EXPECT_TRUE(waiting.offloaded());
  EXPECT_EQ(device.allocated(), 64u) << "x alone";
  EXPECT_EQ(waiting.bytes(), bytes);
  waiting.offload();
  device.set_capacity(200);
  EXPECT_THROW(waiting.restore(), OutOfMemoryError);
  EXPECT_TRUE(waiting.offloaded());
  EXPECT_EQ(device.allocated(), 64u);
  device.set_capacity(1 << 20);
  waiting.restore();
  EXPECT_FALSE(waiting.offloaded());
  EXPECT_EQ(values(), before);
  EXPECT_EQ(product(), product_before);
}

struct Tables {
  Embedding tokens{5000, 256}, positions{77, 256};
  void visit(Visitor& v) {
    v("tokens", tokens);
    v("positions", positions);
  }
};

TEST(Parameters, LargeTablesLieInMappedMemory) {
  const RandomSource source;
  testing_support::GuardedDevice device;
  device.offer_mapped();
  Tables there, here;
  load_parameters(here, host_device(), source, DType::kF32);
  const std::vector<float> want = to_floats(host_device(), here.tokens.table);
  const VisitModel visit = [&](Visitor& v) { there.visit(v); };
  for (const bool offloaded : {false, true}) {  // loaded for the device, or for host memory at first
    load_parameters(there, offloaded ? host_device() : device, source, DType::kF32);
    OffloadedModel waiting(visit, device);
    if (offloaded) waiting.offload();
    for (int round = 0; round < 2; ++round) {
      waiting.restore();
      const void* data = there.tokens.table.data();
      EXPECT_EQ(device.mapped(), 1);
      EXPECT_EQ(resident_bytes(visit), 77u * 256 * 4) << "of the device's memory";
      EXPECT_EQ(to_floats(device, there.tokens.table), want);
      waiting.offload();
      EXPECT_EQ(device.allocated(), 0u);
      waiting.restore();
      EXPECT_EQ(there.tokens.table.data(), data) << "a table is moved once";
      waiting.offload();
    }
    waiting.restore();
    there = Tables();
  }
  EXPECT_EQ(device.mapped(), 0);
}

TEST(Parameters, ReportsEveryMissingKeyAtOnce) {
  RandomSource source;
  source.absent = {"attn.to_k.bias", "list.1.weight"};
  Layer layer;
  try {
    load_parameters(layer, host_device(), source, DType::kF32);
    FAIL() << "expected a FormatError";
  } catch (const FormatError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("random source: 2 of 9 expected tensors are missing"),
                                HasSubstr("attn.to_k.bias [2]"), HasSubstr("list.1.weight [2,3]")));
  }
  EXPECT_TRUE(source.read_names.empty());  // nothing is read before all keys are known to be there
}

TEST(Parameters, CutsALongListOfMissingKeys) {
  RandomSource source;
  for (const ParameterSlot::Part& part : list_parameters(VaeDecoder(configs::vae_sd())))
    source.absent.insert(part.name);
  try {
    VaeDecoder::load(host_device(), configs::vae_sd(), source, DType::kF32);
    FAIL() << "expected a FormatError";
  } catch (const FormatError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("140 of 140"), HasSubstr("and 120 more")));
  }
}

TEST(Parameters, PassesOnWrongShapes) {
  RandomSource source;
  source.shapes["list.0.weight"] = Shape{4, 3};
  Layer layer;
  EXPECT_THROW(load_parameters(layer, host_device(), source, DType::kF32), ShapeError);
}

TEST(Parameters, OneHalfOfAVaeDoesNotReportTheOther) {
  VaeConfig config{.channels = {32, 32}, .resnets = 1};
  const RandomSource source;
  VaeDecoder::load(host_device(), config, source, DType::kF32);
  EXPECT_TRUE(source.ignored.contains("encoder.down_blocks.0.resnets.0.conv1.weight"));
  EXPECT_TRUE(source.ignored.contains("quant_conv.weight"));
  EXPECT_FALSE(source.ignored.contains("post_quant_conv.weight"));
}

}  // namespace
}  // namespace rocm_sd
