#include "weights/edm_keys.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;

constexpr std::string_view kMean = "edm_mean", kStd = "edm_std", kMax = "edm_vpred.sigma_max",
                           kLeast = "edm_vpred.sigma_min";
constexpr int64_t kLatentChannels = 4;

std::vector<double> values_of(const TensorSet& tensors, std::string_view name, int64_t count) {
  const auto title = [&] { return concat(printable(tensors.path().string()), ": ", name); };
  const TensorRef ref = tensors.ref(name);
  require<FormatError>(ref.entry != nullptr, title(), ": is missing, and its partner is there");
  require<FormatError>(ref.entry->numel() == count, title(), ": expected ", count, " values, got ",
                       ref.entry->shape);
  std::vector<char> bytes(ref.entry->bytes);
  ref.file->read(*ref.entry, 0, ref.entry->bytes, bytes.data());
  std::vector<float> floats(static_cast<size_t>(count));
  convert_elements(bytes.data(), ref.entry->dtype, floats.data(), DType::kF32, count);
  for (const float v : floats)
    require<FormatError>(std::isfinite(v) && (v > 0 || name == kMean), title(), ": expected ",
                         name == kMean ? "finite" : "positive", " values, got ", v);
  return {floats.begin(), floats.end()};
}

bool is_playground(const TensorSet& tensors) { return tensors.find(kMean) || tensors.find(kStd); }

}  // namespace

bool has_edm_keys(const TensorSet& tensors) { return is_playground(tensors) || tensors.find(kMax); }

json edm_scheduler_config(const TensorSet& tensors) {
  if (is_playground(tensors))  // as published beside Playground 2.5
    return {{"_class_name", "EDMDPMSolverMultistepScheduler"},
            {"prediction_type", "epsilon"},
            {"sigma_data", 0.5},
            {"sigma_max", 80.0},
            {"sigma_min", 0.002}};
  // CosXL: the schedule that its folder has.
  const double least = tensors.find(kLeast) ? values_of(tensors, kLeast, 1)[0] : 0.002;
  const double most = values_of(tensors, kMax, 1)[0];
  require<FormatError>(least < most, printable(tensors.path().string()), ": ", kLeast,
                       ": expected less than ", kMax, ", ", most, ", got ", least);
  return {{"_class_name", "EDMEulerScheduler"},
          {"prediction_type", "v_prediction"},
          {"sigma_data", 1.0},
          {"sigma_max", most},
          {"sigma_min", least},
          {"sigma_schedule", "exponential"}};
}

json edm_vae_fields(const TensorSet& tensors) {
  if (!is_playground(tensors)) return json::object();
  return {{"latents_mean", values_of(tensors, kMean, kLatentChannels)},
          {"latents_std", values_of(tensors, kStd, kLatentChannels)},
          {"scaling_factor", 0.5}};
}

}  // namespace rocm_sd
