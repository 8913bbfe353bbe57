// The C interface of upscalers.
#include <memory>

#include "pipeline/options.hpp"
#include "rocm_sd/upscale.hpp"
#include "scaling/c_call.hpp"

using namespace rocm_sd::c_call;

struct rocm_sd_upscaler {
  rocm_sd::Upscaler upscaler;
};

namespace {

// Calls take(name, value) for each option; false: there is none of this name.
template <class Take>
void read_options(const rocm_sd_option* options, const Take& take) {
  for (; options && options->name; ++options) {
    require_argument(options->value != nullptr, options->name);
    const std::string name = options->name;
    try {
      if (!take(name, std::string(options->value))) throw rocm_sd::UsageError("is no option of an upscaler");
    } catch (const rocm_sd::UsageError& e) {
      throw rocm_sd::UsageError(name + ": " + e.what());
    }
  }
}

}  // namespace

extern "C" {

rocm_sd_status rocm_sd_upscaler_create(const rocm_sd_option* options, rocm_sd_upscaler** out) {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(out && options, "options and out");
    rocm_sd::UpscalerOptions wanted;
    read_options(options, [&](const std::string& name, const std::string& value) {
      if (name == "upscaler")
        wanted.model = value;
      else if (name == "device")
        wanted.device = value;
      else if (name == "dtype")
        wanted.dtype = value;
      else
        return false;
      return true;
    });
    *out = new rocm_sd_upscaler{rocm_sd::Upscaler::load(wanted)};
  });
}

void rocm_sd_upscaler_free(rocm_sd_upscaler* upscaler) { delete upscaler; }

rocm_sd_status rocm_sd_upscale(rocm_sd_upscaler* upscaler, const rocm_sd_option* options, int width,
                               int height, const uint8_t* rgb, const rocm_sd_callbacks* callbacks,
                               rocm_sd_result** out) {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(upscaler && rgb && out, "upscaler, rgb and out");
    constexpr int kMax = 1 << 15;
    if (width <= 0 || height <= 0 || width > kMax || height > kMax)
      throw rocm_sd::UsageError("picture: width and height must be 1..32768");
    rocm_sd::UpscaleRequest request;
    read_options(options, [&](const std::string& name, const std::string& value) {
      if (name == "factor")
        request.factor = rocm_sd::parse_number(value, 0.01, 64);
      else if (name == "width")
        request.width = static_cast<int>(rocm_sd::parse_integer(value, 1, kMax));
      else if (name == "height")
        request.height = static_cast<int>(rocm_sd::parse_integer(value, 1, kMax));
      else if (name == "tile")
        request.tiles.size = static_cast<int>(rocm_sd::parse_integer(value, 0, kMax));
      else if (name == "tile-overlap")
        request.tiles.overlap = static_cast<int>(rocm_sd::parse_integer(value, 0, kMax));
      else
        return false;
      return true;
    });
    const size_t bytes = static_cast<size_t>(width) * static_cast<size_t>(height) * 3;
    auto result = std::make_unique<Result>();
    std::vector<rocm_sd::Picture> made(1);
    made[0].image =
        upscaler->upscaler.upscale({width, height, {rgb, rgb + bytes}, {}}, request, adapt(callbacks));
    result->take(std::move(made));
    *out = result.release();
  });
}

}  // extern "C"
