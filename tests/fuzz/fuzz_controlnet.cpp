// Fuzzes ControlNet files: names made of real pieces in Diffusers' and LDM's style, any small shapes, and the
// configuration that is told from them.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/control_lora_source.hpp"
#include "models/controlnet.hpp"
#include "weights/controlnet_weights.hpp"

namespace {

using namespace rocm_sd;

constexpr const char* kHeads[] = {"control_model.",
                                  "",
                                  "controlnet_cond_embedding.",
                                  "controlnet_down_blocks.",
                                  "controlnet_mid_block.",
                                  "down_blocks.",
                                  "mid_block.",
                                  "time_embedding.",
                                  "add_embedding.",
                                  "control_model.input_blocks.",
                                  "control_model.middle_block.",
                                  "control_model.zero_convs.",
                                  "control_model.middle_block_out.",
                                  "control_model.input_hint_block.",
                                  "control_model.time_embed.",
                                  "input_hint_block.",
                                  "lora_",
                                  "lora_controlnet",
                                  "task_embedding",
                                  "control_add_embedding.",
                                  "transformer_layes.",
                                  "spatial_ch_projs.",
                                  "input_blocks.",
                                  "time_embed."};
constexpr const char* kPieces[] = {"conv_in.",
                                   "conv_out.",
                                   "blocks.",
                                   "0.",
                                   "1.",
                                   "2.",
                                   "3.",
                                   "4.",
                                   "14.",
                                   "resnets.0.",
                                   "attentions.0.",
                                   "conv1.",
                                   "conv_shortcut.",
                                   "transformer_blocks.0.",
                                   "attn1.",
                                   "attn2.",
                                   "to_q.",
                                   "to_k.",
                                   "to_v.",
                                   "to_out.0.",
                                   "proj_in.",
                                   "linear_1.",
                                   "linear_2.",
                                   "in_layers.2.",
                                   "op.",
                                   "downsamplers.0.conv.",
                                   "norm1.",
                                   "999."};
constexpr const char* kLeaves[] = {"weight", "bias", "", "alpha", "up", "down", "attn.in_proj_weight"};
constexpr int64_t kDims[] = {0, 1, 3, 4, 8, 16, 32, 64};

struct Bytes {
  const uint8_t* at;
  size_t left;
  uint8_t next() { return left == 0 ? 0 : (--left, *at++); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes{data, size};
  static const std::vector<float> values(1 << 16, 0.5f);
  static const nlohmann::json unet = {{"block_out_channels", {32, 64}}, {"attention_head_dim", 4}};
  // A file with the marks of both parts that every ControlNet has, so that most inputs get further.
  std::vector<MemoryTensor> tensors = {
      {"controlnet_cond_embedding.conv_in.weight", DType::kF32, {16, 3, 3, 3}, values.data()},
      {"down_blocks.0.resnets.0.conv1.weight", DType::kF32, {32, 32, 3, 3}, values.data()}};
  if (bytes.next() % 2) tensors.clear();
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
  try {
    const TensorSet set = TensorSet::of(SafetensorsFile::of_memory("fuzz", tensors));
    const ControlNetWeights opened = controlnet_of(set, {unet, ModelKind::kSd1});
    const ControlNetConfig config = controlnet_config(*opened.config, "fuzz");
    controlnet_refusal(config, config.trunk, 8);
    // What was accepted can be asked for its parameters.
    const std::vector<ParameterSlot::Part> parts = list_parameters(ControlNet(config));
    if (opened.low_rank) ControlLoraSource(opened.store, opened.store).check(parts);
    for (const ParameterSlot::Part& part : parts)
      if (opened.store.has(part.name)) opened.store.check(part.name, part.shape);
  } catch (const Error&) {
  }
  return 0;
}
