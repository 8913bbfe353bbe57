#include "schedulers/mimic.hpp"

#include <algorithm>
#include <cmath>

namespace rocm_sd {

double quantile(std::vector<double>& values, double ratio) {
  std::ranges::sort(values);
  const double at = ratio * static_cast<double>(values.size() - 1);
  const size_t low = static_cast<size_t>(at), high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

std::vector<float> mimicked(std::span<const float> negative, std::span<const float> positive, size_t channels,
                            const MimicArgs& args) {
  std::vector<float> out(negative.size());
  const size_t pixels = negative.size() / channels;
  std::vector<double> values(pixels), sizes(pixels);
  for (size_t c = 0; c < channels; ++c) {
    // The channel at a scale, less its mean; the mean.
    const auto centre = [&](double scale) {
      double sum = 0;
      for (size_t p = 0; p < pixels; ++p) {
        const double u = negative[p * channels + c];
        values[p] = u + scale * (positive[p * channels + c] - u);
        sum += values[p];
      }
      const double mean = sum / static_cast<double>(pixels);
      for (size_t p = 0; p < pixels; ++p) {
        values[p] -= mean;
        sizes[p] = std::abs(values[p]);
      }
      return mean;
    };
    centre(args.mimic_scale);
    const double wanted = *std::ranges::max_element(sizes);
    const double mean = centre(args.scale);
    const double most = std::max(wanted, quantile(sizes, args.percentile));
    for (size_t p = 0; p < pixels; ++p) {
      const double share = most > 0 ? std::clamp(values[p], -most, most) / most : 0;
      out[p * channels + c] = static_cast<float>(share * wanted + mean);
    }
  }
  return out;
}

}  // namespace rocm_sd
