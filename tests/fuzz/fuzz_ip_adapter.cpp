// Fuzzes files of IP-Adapters and image encoders: names made of real pieces, any small shapes, and the
// configurations that are told from them.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/ip_adapter.hpp"
#include "weights/ip_adapter_weights.hpp"

namespace {

using namespace rocm_sd;

constexpr const char* kHeads[] = {"image_proj.",        "ip_adapter.1.",
                                  "ip_adapter.3.",      "ip_adapter.",
                                  "vision_model.",      "vision_model.embeddings.",
                                  "visual_projection.", ""};
constexpr const char* kPieces[] = {"proj.",
                                   "norm.",
                                   "latents",
                                   "proj_in.",
                                   "proj_out.",
                                   "0.",
                                   "1.",
                                   "3.",
                                   "2.",
                                   "perceiver_resampler.",
                                   "99.",
                                   "layers.",
                                   "to_q.",
                                   "to_kv.",
                                   "to_k_ip.",
                                   "to_v_ip.",
                                   "to_q_lora.down.",
                                   "encoder.layers.",
                                   "mlp.fc1.",
                                   "class_embedding",
                                   "patch_embedding.",
                                   "position_embedding."};
constexpr const char* kLeaves[] = {"weight", "bias", ""};
constexpr int64_t kDims[] = {0, 1, 3, 4, 14, 16, 64, 197, 257, 768};

struct Bytes {
  const uint8_t* at;
  size_t left;
  uint8_t next() { return left == 0 ? 0 : (--left, *at++); }
};

template <class Read>
void expect_errors_only(const Read& read) {
  try {
    read();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes{data, size};
  static const std::vector<float> values(1 << 16, 0.5f);
  std::vector<MemoryTensor> tensors = {
      {"ip_adapter.1.to_k_ip.weight", DType::kF32, {4, 64}, values.data()},
      {"vision_model.embeddings.class_embedding", DType::kF32, {64}, values.data()}};
  if (bytes.next() % 2) tensors.pop_back();
  while (bytes.left > 2 && tensors.size() < 24) {
    std::string name = kHeads[bytes.next() % std::size(kHeads)];
    for (int pieces = bytes.next() % 5; pieces > 0; --pieces)
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
  expect_errors_only([&] {
    const TensorSet set = TensorSet::of(SafetensorsFile::of_memory("fuzz", tensors));
    expect_errors_only([&] {
      const WeightStore store = ip_adapter_of(set);
      const IpAdapterConfig config = ip_adapter_config(store);
      for (const ParameterSlot::Part& part : list_parameters(ImageProjection(config.projection)))
        if (store.has("image_proj." + part.name)) store.check("image_proj." + part.name, part.shape);
    });
    expect_errors_only([&] {
      const ImageEncoderWeights opened = image_encoder_of(set, nullptr);
      const ClipVisionConfig config = clip_vision_config(*opened.config, "fuzz");
      for (const ParameterSlot::Part& part : list_parameters(ClipVisionModel(config)))
        if (opened.store.has(part.name)) opened.store.check(part.name, part.shape);
    });
  });
  return 0;
}
