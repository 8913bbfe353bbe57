#include "pipeline/soft_inpaint.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "pipeline/box_blur.hpp"
#include "pipeline/options.hpp"
#include "pipeline/pillow_resize.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kChannels = 4;

double length_of(const float* pixel) {
  double sum = 0;
  for (size_t c = 0; c < kChannels; ++c) sum += double{pixel[c]} * pixel[c];
  return std::sqrt(sum);
}

// A Gaussian of radius 2 that falls to 0 one pixel beyond, 1 in the middle: [5,5].
constexpr int kRadius = 2;
double kernel_at(int y, int x) {
  const auto gaussian = [](double square) { return std::exp(-square / (1.5 * 1.5)); };
  const double zero = gaussian((kRadius + 1) * (kRadius + 1));
  return std::max(0.0, (gaussian(y * y + x * x) - zero) / (1 - zero));
}

// The mean of those values around a pixel that lie between two shares of their weights, when sorted; of at
// least the weight 1.
double share_mean(const std::vector<double>& plane, int width, int height, int row, int col, double from,
                  double to) {
  std::vector<std::pair<double, double>> values;  // value, weight
  for (int y = std::max(row - kRadius, 0); y <= std::min(row + kRadius, height - 1); ++y)
    for (int x = std::max(col - kRadius, 0); x <= std::min(col + kRadius, width - 1); ++x)
      values.emplace_back(plane[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)],
                          kernel_at(y - row, x - col));
  std::stable_sort(values.begin(), values.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  double all = 0;
  for (const auto& [value, weight] : values) all += weight;
  double low = all * from, high = all * to;
  constexpr double kLeast = 1;
  if (high - low < kLeast) {
    const double middle = (low + high) / 2;
    low = middle - kLeast / 2;
    high = middle + kLeast / 2;
    if (high > all) low = all - kLeast, high = all;
    if (low < 0) low = 0, high = kLeast;
  }
  double sum = 0, weights = 0, begin = 0;
  for (const auto& [value, weight] : values) {
    const double part = std::min(high, begin + weight) - std::max(low, begin);
    if (part > 0) sum += value * part, weights += part;
    begin += weight;
  }
  return weights != 0 ? sum / weights : 0;
}

std::vector<double> share_means(const std::vector<double>& plane, int width, int height, double from,
                                double to) {
  std::vector<double> out(plane.size());
#pragma omp parallel for schedule(static)
  for (int row = 0; row < height; ++row)
    for (int col = 0; col < width; ++col)
      out[static_cast<size_t>(row) * static_cast<size_t>(width) + static_cast<size_t>(col)] =
          share_mean(plane, width, height, row, col, from, to);
  return out;
}

}  // namespace

std::optional<SoftSettings> soft_settings(const std::string& mask_blend) {
  if (mask_blend != "soft" && !mask_blend.starts_with("soft:")) return std::nullopt;
  SoftSettings out;
  struct Field {
    double SoftSettings::* value;
    double least, most;
  };
  const std::array<Field, 6> fields = {{{&SoftSettings::power, 0, 8},
                                        {&SoftSettings::scale, 0, 8},
                                        {&SoftSettings::detail, 1, 32},
                                        {&SoftSettings::influence, 0, 1},
                                        {&SoftSettings::threshold, 0, 8},
                                        {&SoftSettings::contrast, 0, 8}}};
  size_t begin = mask_blend.find(':'), field = 0;
  while (begin != std::string::npos) {
    const size_t end = mask_blend.find(':', begin + 1);
    const std::string text = mask_blend.substr(begin + 1, end == std::string::npos ? end : end - begin - 1);
    require<UsageError>(field < fields.size(), "mask-blend: expected soft with at most ", fields.size(),
                        " numbers, got \"", printable(mask_blend), "\"");
    try {
      out.*fields[field].value = parse_number(text, fields[field].least, fields[field].most);
    } catch (const UsageError& e) {
      throw UsageError(concat("mask-blend: soft: number ", field + 1, ": ", e.what()));
    }
    ++field;
    begin = end;
  }
  return out;
}

std::vector<float> soft_latent_mask(const std::vector<float>& mask, int width, int height, int latent_width,
                                    int latent_height) {
  std::vector<uint8_t> bytes;
  for (const float v : mask) bytes.push_back(static_cast<uint8_t>(std::nearbyint(v * 255.0f)));
  const std::vector<uint8_t> small =
      pillow_resize(bytes, width, height, 1, latent_width, latent_height, PillowFilter::kBicubic);
  std::vector<float> out;
  for (const uint8_t v : small) out.push_back(static_cast<float>(v) / 255.0f);
  return out;
}

std::vector<float> soft_blend(const SoftSettings& settings, const std::vector<float>& original,
                              const std::vector<float>& current, const std::vector<float>& mask,
                              double sigma) {
  std::vector<float> out(current.size());
  const double exponent = std::pow(sigma, settings.power) * settings.scale;
  for (size_t pixel = 0; pixel < current.size() / kChannels; ++pixel) {
    const float *a = &original[kChannels * pixel], *b = &current[kChannels * pixel];
    const double t = std::pow(double{mask[pixel % mask.size()]}, exponent);
    std::array<float, kChannels> mixed;
    for (size_t c = 0; c < kChannels; ++c) mixed[c] = static_cast<float>((1 - t) * a[c] + t * b[c]);
    const double wanted = std::pow(
        (1 - t) * std::pow(length_of(a), settings.detail) + t * std::pow(length_of(b), settings.detail),
        1 / settings.detail);
    const double factor = wanted / (length_of(mixed.data()) + 1e-5);
    for (size_t c = 0; c < kChannels; ++c) out[kChannels * pixel + c] = static_cast<float>(mixed[c] * factor);
  }
  return out;
}

std::vector<float> soft_overlay(const SoftSettings& settings, const std::vector<float>& original,
                                const std::vector<float>& current, const std::vector<float>& mask,
                                int latent_width, int latent_height, int width, int height) {
  std::vector<double> distance;
  for (size_t i = 0; i < current.size(); i += kChannels) {
    std::array<float, kChannels> difference;
    for (size_t c = 0; c < kChannels; ++c) difference[c] = current[i + c] - original[i + c];
    distance.push_back(length_of(difference.data()));
  }
  distance = share_means(distance, latent_width, latent_height, 0.9, 1);
  distance = share_means(distance, latent_width, latent_height, 0.25, 0.75);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < distance.size(); ++i) {
    const double kept = 1 - std::pow(double{mask[i]}, settings.scale / 2);
    const double biased = 0.5 * (1 - settings.influence) + kept * settings.influence;
    const double half =
        settings.threshold * biased / (1.00001 - biased);  // at which half of the original stays
    const double x = 1 / (1 + std::pow(distance[i] / half, settings.contrast));
    const double opacity = 1 - x * x * x * (x * (6 * x - 15) + 10);
    bytes.push_back(static_cast<uint8_t>(255 * (std::isfinite(opacity) ? opacity : 0)));
  }
  bytes = pillow_resize(bytes, latent_width, latent_height, 1, width, height, PillowFilter::kLanczos);
  std::vector<float> out(bytes.begin(), bytes.end());
  constexpr double kBlur = 4;  // pixels
  blur_by_boxes(out, width, height, kBlur);
  for (float& v : out) v = std::clamp(v / 255.0f, 0.0f, 1.0f);
  return out;
}

}  // namespace rocm_sd
