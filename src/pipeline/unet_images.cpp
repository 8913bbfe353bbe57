#include "pipeline/unet_images.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "pipeline/clip_pixels.hpp"
#include "pipeline/control_stage.hpp"

namespace rocm_sd {

bool ImageSetting::acts(int step, int total) const {
  return ControlSetting{.strength = weight, .start = start, .end = end, .views = {}}.acts(step, total);
}

UnetImages::UnetImages(Device& device, const UNet& unet, const ImageRows& rows,
                       const std::vector<ImageSlot>& slots)
    : device_(device), layers_(unet.image_attentions()), rows_(rows), slots_(slots) {
  int64_t levels = 0;
  for (const ImageAttention& layer : layers_) levels = std::max(levels, layer.level + 1);
  for (const ImageSlot& slot : slots_) {
    Adapter& adapter = adapters_.emplace_back();
    for (const ImageAttention& layer : layers_)
      adapter.keys_values.push_back(
          make_tensor(device_, {rows_.rows(), slot.tokens, 2 * layer.width}, unet.text_dtype()));
    for (int64_t part = 0; part < std::max<int64_t>(slot.masks, 1); ++part) {
      auto& factors = adapter.factors.emplace_back();
      for (int64_t level = 0; level < levels; ++level)
        factors.push_back(
            make_tensor(device_, {rows_.rows() * (slot.masks > 0 ? pixels_at(level) : 1)}, DType::kF32));
    }
  }
}

int64_t UnetImages::pixels_at(int64_t level) const {
  return halved(rows_.height, level) * halved(rows_.width, level);
}

uint64_t UnetImages::bytes() const {
  uint64_t bytes = 0;
  for (const Adapter& adapter : adapters_) {
    for (const Tensor& t : adapter.keys_values) bytes += t.bytes();
    for (const auto& levels : adapter.factors)
      for (const Tensor& t : levels) bytes += t.bytes();
  }
  return bytes;
}

void UnetImages::set(Exec& ex, const ImageStates& states, std::vector<ImageSetting> settings,
                     int first_part) {
  require<InternalError>(states.size() == adapters_.size() && settings.size() == adapters_.size(),
                         "image tokens: ", states.size(), " states and ", settings.size(), " settings for ",
                         adapters_.size(), " adapters");
  settings_ = std::move(settings);
  for (size_t a = 0; a < adapters_.size(); ++a) {
    for (size_t i = 0; i < layers_.size(); ++i)
      for (int64_t row = 0; row < rows_.rows(); ++row) {
        // Rows are conditions of images; sets behind the first are one for all images, or one for each.
        const int64_t sets = states[a][i].dim(0) - 1;
        const int64_t set = row / rows_.batch < first_part ? 0 : 1 + row % rows_.batch % sets;
        copy_into(ex, states[a][i].narrow(0, set, 1), adapters_[a].keys_values[i].narrow(0, row, 1));
      }
    for (size_t part = 0; part < adapters_[a].factors.size(); ++part) {
      auto& levels = adapters_[a].factors[part];
      for (size_t level = 0; level < levels.size(); ++level) {
        std::vector<float> cells{1.0f};
        if (slots_[a].masks > 0)
          cells = mask_factors(settings_[a].masks.at(part), static_cast<int>(rows_.image_width),
                               static_cast<int>(rows_.image_height), pixels_at(static_cast<int64_t>(level)));
        std::vector<float> all;
        for (int64_t row = 0; row < rows_.rows(); ++row)
          for (const float cell : cells) all.push_back(static_cast<float>(settings_[a].weight) * cell);
        upload(device_, levels[level], all.data(), levels[level].numel());
      }
    }
  }
}

uint32_t UnetImages::active(int step, int total) const {
  uint32_t bits = 0;
  for (size_t i = 0; i < settings_.size(); ++i)
    if (settings_[i].acts(step, total)) bits |= uint32_t{1} << i;
  return bits;
}

std::vector<ImageTokens> UnetImages::tokens(uint32_t active) const {
  std::vector<ImageTokens> out;
  for (size_t a = 0; a < adapters_.size(); ++a) {
    if (!(active >> a & 1)) continue;
    const auto parts = static_cast<int64_t>(adapters_[a].factors.size());
    const int64_t tokens = slots_[a].tokens / parts;
    for (int64_t part = 0; part < parts; ++part) {
      ImageTokens& own = out.emplace_back();
      for (size_t i = 0; i < layers_.size(); ++i) {
        own.keys_values.push_back(adapters_[a].keys_values[i].narrow(1, part * tokens, tokens));
        own.factors.push_back(
            adapters_[a].factors[static_cast<size_t>(part)][static_cast<size_t>(layers_[i].level)]);
      }
    }
  }
  return out;
}

}  // namespace rocm_sd
