// Fuzzes T2I-Adapter files: names made of real pieces in Diffusers' and the original style, any small shapes,
// and the configuration that is told from them.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/t2i_adapter.hpp"
#include "weights/t2i_weights.hpp"

namespace {

using namespace rocm_sd;

constexpr const char* kHeads[] = {"adapter.", "",         "adapter.body.0.", "adapter.body.1.", "body.0.",
                                  "body.3.",  "body.77.", "conv_in.",        "adapter.conv_in."};
constexpr const char* kPieces[] = {"body.",      "0.",      "1.",      "7.",       "999.",     "resnets.0.",
                                   "resnets.3.", "block1.", "block2.", "in_conv.", "out_conv."};
constexpr const char* kLeaves[] = {"weight", "bias", ""};
constexpr int64_t kDims[] = {0, 1, 3, 4, 8, 32, 64, 192, 256, 768};

struct Bytes {
  const uint8_t* at;
  size_t left;
  uint8_t next() { return left == 0 ? 0 : (--left, *at++); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes{data, size};
  static const std::vector<float> values(1 << 16, 0.5f);
  std::vector<MemoryTensor> tensors = {
      {"adapter.conv_in.weight", DType::kF32, {8, 64, 3, 3}, values.data()},
      {"adapter.body.0.resnets.0.block1.weight", DType::kF32, {8, 8, 3, 3}, values.data()}};
  if (bytes.next() % 2) tensors.clear();
  while (bytes.left > 2 && tensors.size() < 24) {
    std::string name = kHeads[bytes.next() % std::size(kHeads)];
    for (int pieces = bytes.next() % 4; pieces > 0; --pieces)
      name += kPieces[bytes.next() % std::size(kPieces)];
    name += kLeaves[bytes.next() % std::size(kLeaves)];
    std::vector<int64_t> dims;
    for (int rank = bytes.next() % 5; rank > 0; --rank)
      dims.push_back(kDims[bytes.next() % std::size(kDims)]);
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    if (count > static_cast<int64_t>(values.size())) dims = {8};
    tensors.push_back({name, DType::kF32, Shape(std::span<const int64_t>(dims)), values.data()});
  }
  UNetConfig unet;
  unet.down.resize(3);
  try {
    const TensorSet set = TensorSet::of(SafetensorsFile::of_memory("fuzz", tensors));
    if (!holds_t2i_adapter(set)) return 0;
    const T2iWeights opened = t2i_of(set, nullptr);
    const T2iConfig config = t2i_config(*opened.config, "fuzz");
    t2i_refusal(config, unet, 8);
    for (const ParameterSlot::Part& part : list_parameters(T2iAdapter(config)))
      if (opened.store.has(part.name)) opened.store.check(part.name, part.shape);
  } catch (const Error&) {
  }
  return 0;
}
