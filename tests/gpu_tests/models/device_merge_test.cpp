// LoRAs merged on the GPU against the same merged on the host, and back to the bit.
#include "models/device_merge.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "gpu_tests/gpu_test.hpp"
#include "models/adapted_source.hpp"
#include "support/random_source.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using testing_support::RandomSource;
using testing_support::to_doubles;

struct Layers {
  Linear one{24, 40, false};
  StackedLinear three{24, {{"q", 16}, {"k", 16}, {"v", 8}}, false};
  Conv conv{8, 16};
  void visit(Visitor& v) {
    v("mid_block.one", one);
    v("mid_block.three", three);
    v("mid_block.conv", conv);
  }
  // Every weight as it is now.
  std::vector<std::vector<double>> values(Device& device) const {
    std::vector<std::vector<double>> out;
    for (const Weight* w : {&one.weight, &three.weight, &conv.weight}) {
      const std::vector<float> floats = to_floats(device, w->stored().values);
      out.emplace_back(floats.begin(), floats.end());
    }
    return out;
  }
};

// A LoRA file of memory: names to random values of these shapes.
std::shared_ptr<const AdapterFile> make_adapter(const std::vector<std::pair<std::string, Shape>>& tensors,
                                                uint64_t seed) {
  static std::vector<std::vector<float>> kept;  // memory of the files
  std::vector<MemoryTensor> listed;
  for (const auto& [name, shape] : tensors) {
    const auto values = to_doubles(testing_support::random_tensor(shape, DType::kF32, seed++));
    kept.emplace_back(values.begin(), values.end());
    for (float& v : kept.back()) v *= 0.3f;
    listed.push_back({name, DType::kF32, shape, kept.back().data()});
  }
  std::vector<MemoryTensor> model;
  Layers layers;
  for (const ParameterSlot::Part& part : list_parameters(layers))
    model.push_back({part.name, DType::kF32, part.shape, nullptr});
  const auto file = SafetensorsFile::of_memory("model", model);
  std::map<std::string, StoredTensor, std::less<>> weights;
  for (const TensorEntry& entry : file->entries()) weights[entry.name] = {{file.get(), &entry}, entry.shape};
  AdapterTargets targets;
  targets.add(WeightStore(Component::kUnet, "unet", {file}, weights));
  return AdapterFile::of(TensorSet::of(SafetensorsFile::of_memory("lora", listed)), targets, "sd1");
}

// Counts what is read of the model's file.
class CountedSource final : public ParameterSource {
 public:
  std::string title() const override { return source_.title(); }
  bool has(const std::string& name) const override { return source_.has(name); }
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override {
    ++reads;
    source_.read(name, shape, dtype, dst);
  }
  void ignore(const std::string&) const override {}
  mutable int reads = 0;

 private:
  RandomSource source_;
};

class DeviceMergeTest : public testing::TestWithParam<DType> {
 protected:
  CountedSource source_;
  AdapterBases bases_;
  Layers layers_;
  std::vector<AdapterUse> now_;
  int reads_ = 0;  // of the model's file, by changes

  void SetUp() override { load_parameters(layers_, test_gpu(), source_, GetParam()); }
  void change_to(std::vector<AdapterUse> wanted) {
    const int reads = source_.reads;
    DeviceMerge merge(bases_, Component::kUnet, now_, wanted, test_gpu());
    const AdaptedSource adapted(source_, Component::kUnet, wanted, &merge);
    load_parameters(layers_, test_gpu(), adapted, GetParam(), {}, [&](const ParameterSlot& slot) {
      for (const ParameterSlot::Part& part : slot.parts)
        if (any_changes(now_, Component::kUnet, part.name) ||
            any_changes(wanted, Component::kUnet, part.name))
          return true;
      return false;
    });
    now_ = std::move(wanted);
    reads_ += source_.reads - reads;
  }
  // Against the host's merge, in f32, of weights that were rounded to the type before it.
  void expect_merged(const std::vector<std::vector<double>>& before) const {
    Layers host;
    const AdaptedSource adapted(source_, Component::kUnet, now_);
    load_parameters(host, host_device(), adapted, DType::kF32);
    const auto want = host.values(host_device()), got = layers_.values(test_gpu());
    const double unit = GetParam() == DType::kF32 ? 1e-6 : GetParam() == DType::kF16 ? 0x1p-11 : 0x1p-8;
    for (size_t i = 0; i < want.size(); ++i) {
      double largest = 0, change = 0;
      for (size_t k = 0; k < want[i].size(); ++k) {
        largest = std::max(largest, std::abs(want[i][k]));
        change = std::max(change, std::abs(want[i][k] - before[i][k]));
      }
      // Rounded twice, and the change by its factors' rounding.
      testing_support::expect_near(got[i], want[i],
                                   (2.5 * largest + 3 * change) * unit / std::max(1.0, largest),
                                   concat("weight ", i));
    }
  }
};

TEST_P(DeviceMergeTest, MergesChangesAndTakesBack) {
  const auto before = layers_.values(test_gpu());
  const auto first = make_adapter({{"unet.mid_block.one.lora_A.weight", {5, 24}},
                                   {"unet.mid_block.one.lora_B.weight", {40, 5}},
                                   {"unet.mid_block.three.q.lora_A.weight", {4, 24}},
                                   {"unet.mid_block.three.q.lora_B.weight", {16, 4}},
                                   {"unet.mid_block.three.v.lora_A.weight", {2, 24}},
                                   {"unet.mid_block.three.v.lora_B.weight", {8, 2}},
                                   {"unet.mid_block.conv.lora_A.weight", {3, 8, 3, 3}},
                                   {"unet.mid_block.conv.lora_B.weight", {16, 3, 1, 1}}},
                                  1);
  const auto second = make_adapter({{"unet.mid_block.one.lora_A.weight", {33, 24}},
                                    {"unet.mid_block.one.lora_B.weight", {40, 33}},
                                    {"unet.mid_block.three.k.lora_A.weight", {1, 24}},
                                    {"unet.mid_block.three.k.lora_B.weight", {16, 1}}},
                                   100);
  change_to({{first, 0.7}});
  expect_merged(before);
  EXPECT_GT(bases_.bytes(), 0u);
  change_to({{first, 0.7}, {second, -1.5}});
  expect_merged(before);
  change_to({{second, 1}});
  expect_merged(before);
  change_to({});
  EXPECT_EQ(layers_.values(test_gpu()), before) << "taken back to the bit";
  EXPECT_EQ(bases_.bytes(), 0u);
  EXPECT_EQ(reads_, 0) << "the model's file is left alone";
}

// What is no plain LoRA, and what was before is not known: read from the file.
TEST_P(DeviceMergeTest, LeavesTheRestToTheFile) {
  const auto before = layers_.values(test_gpu());
  const auto whole = make_adapter({{"unet.mid_block.one.diff", {40, 24}}}, 7);
  const auto plain = make_adapter(
      {{"unet.mid_block.one.lora_A.weight", {5, 24}}, {"unet.mid_block.one.lora_B.weight", {40, 5}}}, 9);
  change_to({{whole, 0.5}});
  expect_merged(before);
  change_to({{plain, 0.5}});
  expect_merged(before);
  EXPECT_EQ(bases_.bytes(), 0u) << "what it was before is not known";
  change_to({});
  EXPECT_EQ(layers_.values(test_gpu()), before);
  change_to({{plain, 0.5}});
  EXPECT_GT(bases_.bytes(), 0u);
  bases_.clear();  // as where memory is short
  change_to({});
  EXPECT_EQ(layers_.values(test_gpu()), before);
}

INSTANTIATE_TEST_SUITE_P(Types, DeviceMergeTest, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace rocm_sd
