// Fuzzes LoRA files: names made of real pieces, any small shapes and values, against a model of three layers.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/adapted_source.hpp"
#include "weights/adapter.hpp"

namespace {

using namespace rocm_sd;

constexpr const char* kStems[] = {"lora_unet_mid_block_a", "unet.mid_block.a", "mid_block.conv",
                                  "lora_te_text_model_b",  "nothing",          ""};
constexpr const char* kLeaves[] = {
    ".lora_down.weight", ".lora_up.weight", ".lora_mid.weight", ".alpha",     ".dora_scale",
    ".lora_A.weight",    ".lora_B.weight",  ".lora_A.x.weight", ".hada_w1_a", ".hada_w1_b",
    ".hada_w2_a",        ".hada_w2_b",      ".hada_t1",         ".hada_t2",   ".lokr_w1",
    ".lokr_w1_a",        ".lokr_w1_b",      ".lokr_w2",         ".lokr_w2_a", ".lokr_w2_b",
    ".lokr_t2",          ".diff",           ".diff_b",          ".on_input",  ".weight",
    "_lora.up.weight"};

struct Bytes {
  const uint8_t* at;
  size_t left;
  uint8_t next() { return left == 0 ? 0 : (--left, *at++); }
};

std::shared_ptr<const SafetensorsFile> memory(const std::vector<MemoryTensor>& tensors) {
  return SafetensorsFile::of_memory("fuzz", tensors);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes{data, size};
  static const std::vector<float> values(4096, 0.5f);
  std::vector<MemoryTensor> tensors;
  while (bytes.left > 2 && tensors.size() < 12) {
    std::string name = kStems[bytes.next() % std::size(kStems)];
    name += kLeaves[bytes.next() % std::size(kLeaves)];
    std::vector<int64_t> dims;
    for (int rank = bytes.next() % 5; rank > 0; --rank) dims.push_back(bytes.next() % 8);
    tensors.push_back({name, DType::kF32, Shape(std::span<const int64_t>(dims)), values.data()});
  }
  try {
    const auto model = memory({{"mid_block.a.weight", DType::kF32, {4, 6}, nullptr},
                               {"mid_block.a.bias", DType::kF32, {4}, nullptr},
                               {"mid_block.conv.weight", DType::kF32, {4, 2, 3, 3}, nullptr}});
    std::map<std::string, StoredTensor, std::less<>> weights;
    for (const TensorEntry& entry : model->entries())
      weights[entry.name] = {{model.get(), &entry}, entry.shape};
    const WeightStore store(Component::kUnet, "unet", {model}, weights);
    AdapterTargets targets;
    targets.add(store);
    const auto file = AdapterFile::of(TensorSet::of(memory(tensors)), targets, "sd1");
    // What was accepted can be merged.
    for (const auto& [name, module] : file->modules(Component::kUnet)) {
      const Shape& shape = store.shape(name);
      std::vector<float> weight(static_cast<size_t>(shape.numel()), 1.0f);
      merge_adapter(*file, module, 0.5, shape, weight.data());
    }
  } catch (const Error&) {
  }
  return 0;
}
