// Random LoRAs of a model in memory, and a small UNet with them merged or at run time.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/elementwise/elementwise.hpp"
#include "models/adapted_source.hpp"
#include "models/low_rank_terms.hpp"
#include "models/unet.hpp"
#include "support/random_source.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

// A LoRA of these tensors' layers: up times down, of every third convolution through a middle filter. Its
// changes have `size` times the deviation of a RandomSource's weights.
inline std::shared_ptr<const AdapterFile> random_adapter(const std::vector<ParameterSlot::Part>& parts,
                                                         int64_t rank, uint64_t seed, double size = 0.3) {
  static std::vector<std::vector<float>> kept;  // memory of the files
  std::vector<MemoryTensor> tensors, model;
  const auto add = [&](const std::string& name, const Shape& shape, double deviation) {
    const auto values = to_doubles(random_tensor(shape, DType::kF32, seed++));
    kept.emplace_back(values.begin(), values.end());
    for (float& v : kept.back()) v *= static_cast<float>(deviation);
    tensors.push_back({name, DType::kF32, shape, kept.back().data()});
  };
  int filters = 0;
  for (const ParameterSlot::Part& part : parts) {
    model.push_back({part.name, DType::kF32, part.shape, nullptr});
    const Shape& s = part.shape;
    if (!part.name.ends_with(".weight") || s.rank() < 2) continue;
    const std::string stem = "lora_unet_" + part.name.substr(0, part.name.rfind('.'));
    std::string key = stem;
    std::replace(key.begin(), key.end(), '.', '_');
    const bool filter = s.rank() == 4, middle = filter && s[2] > 1 && ++filters % 3 == 0;
    const double in = static_cast<double>(s.numel()) / static_cast<double>(s[0]),
                 r = static_cast<double>(rank);
    const double pixels = filter ? static_cast<double>(s[2] * s[3]) : 1;
    if (middle) {
      add(key + ".lora_down.weight", {rank, s[1], 1, 1}, std::sqrt(pixels / in));
      add(key + ".lora_mid.weight", {rank, rank, s[2], s[3]}, 1 / std::sqrt(r * pixels));
    } else {
      add(key + ".lora_down.weight", filter ? Shape{rank, s[1], s[2], s[3]} : Shape{rank, s[1]},
          1 / std::sqrt(in));
    }
    add(key + ".lora_up.weight", filter ? Shape{s[0], rank, 1, 1} : Shape{s[0], rank}, size / std::sqrt(r));
  }
  const auto file = SafetensorsFile::of_memory("model", model);
  std::map<std::string, StoredTensor, std::less<>> weights;
  for (const TensorEntry& entry : file->entries()) weights[entry.name] = {{file.get(), &entry}, entry.shape};
  AdapterTargets targets;
  targets.add(WeightStore(Component::kUnet, "unet", {file}, weights));
  return AdapterFile::of(TensorSet::of(SafetensorsFile::of_memory("lora", tensors)), targets, "sd1");
}

// A UNet of every kind of layer, with two images in its batch.
struct LowRankUNet {
  static UNetConfig config() {
    UNetConfig config;
    config.norm_groups = 4;
    config.time_width = 32;
    config.down = {{.channels = 8, .resnets = 1, .transformer_layers = {1}, .heads = 2, .context_width = 16},
                   {.channels = 16, .resnets = 1, .heads = 2, .resamples = false}};
    config.up = {{.channels = 16, .resnets = 2, .heads = 2},
                 {.channels = 8,
                  .resnets = 2,
                  .transformer_layers = {1, 1},
                  .heads = 2,
                  .context_width = 16,
                  .resamples = false}};
    config.mid = UNetMidConfig{{2}, 4, 16};
    return config;
  }

  Device& device;
  UNet unet;
  TextCache cache = unet.make_text_cache(device, 2, 5);
  Tensor latents = on_device(random_tensor({2, 6, 4, 4}, DType::kF32, 1));
  Tensor states = on_device(random_tensor({2, 5, 16}, DType::kF32, 2));
  Tensor timestep = tensor_from(device, {2}, std::vector<float>{300, 20}.data());
  Tensor shifts, out;
  Arena arena{device};
  Program prepare{"prepare", arena, [this](Exec& ex) {
                    unet.prepare_text(ex, states, cache);
                    copy_into(ex, unet.time_shifts(ex, {timestep}), shifts);
                  }};
  Program step{"step", arena, [this](Exec& ex) { copy_into(ex, unet(ex, latents, shifts, cache), out); }};

  LowRankUNet(Device& on, DType dtype, const ParameterSource& source, const WeightFormat& weights = {})
      : device(on), unet(UNet::load(on, config(), source, dtype, weights)) {
    latents = cast_input(latents);
    states = cast_input(states);
    shifts = make_tensor(device, {2, unet.time_channels()}, unet.compute_dtype());
    out = make_tensor(device, {2, 6, 4, 4}, DType::kF32);
  }
  LowRankUNet(const LowRankUNet&) = delete;

  VisitModel visit() {
    return [this](Visitor& v) { unet.visit(v); };
  }
  // Its terms are those of the adapters, as what was planned must be anew.
  void set_terms(const std::vector<std::shared_ptr<const AdapterFile>>& files,
                 const std::shared_ptr<RowStrengths>& strengths) {
    std::vector<AdapterUse> uses;
    for (const auto& file : files) uses.push_back({file, 1});
    set_low_rank_terms(visit(), {device, Component::kUnet, strengths}, uses);
  }
  // Of row 0, then of row 1.
  std::vector<double> run() {
    prepare.run();
    step.run();
    const std::vector<float> values = to_floats(device, out);
    return {values.begin(), values.end()};
  }

 private:
  Tensor on_device(const Tensor& host) const {
    const auto values = to_doubles(host);
    const std::vector<float> floats(values.begin(), values.end());
    return tensor_from(device, host.shape(), floats.data());
  }
  Tensor cast_input(const Tensor& x) {
    const std::vector<float> values = to_floats(device, x);
    return tensor_from(device, x.shape(), values.data(), unet.input_dtype());
  }
};

// The same with the adapters merged into the weights on the host.
inline std::vector<double> merged_output(Device& device, DType dtype, std::vector<AdapterUse> uses) {
  const RandomSource source;
  const AdaptedSource adapted(source, Component::kUnet, std::move(uses));
  return LowRankUNet(device, dtype, adapted).run();
}

// ||a - b|| / ||b||, of the row of the batch.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b, size_t row) {
  const size_t half = b.size() / 2;
  double error = 0, norm = 0;
  for (size_t i = row * half; i < (row + 1) * half; ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(error / norm);
}
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  return std::max(relative_error(a, b, 0), relative_error(a, b, 1));
}

}  // namespace rocm_sd::testing_support
