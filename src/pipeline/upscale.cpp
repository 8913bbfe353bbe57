// Upscaler: passes of a network, and the filters.
#include "rocm_sd/upscale.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "pipeline/image_sizes.hpp"
#include "pipeline/image_upscaler.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd {
namespace {

constexpr double kMaxFactor = 64;

UpscalerInfo filter_info(const std::string& name) { return {.name = name, .kind = "filter", .factor = 2}; }

}  // namespace

struct Upscaler::State {
  UpscalerInfo info;
  std::optional<PictureFilter> filter;  // in place of a network
  std::unique_ptr<ImageUpscaler> network;
};

Upscaler::Upscaler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Upscaler::~Upscaler() = default;
Upscaler::Upscaler(Upscaler&&) noexcept = default;
Upscaler& Upscaler::operator=(Upscaler&&) noexcept = default;
const UpscalerInfo& Upscaler::info() const { return state_->info; }

Upscaler Upscaler::load(const UpscalerOptions& options) {
  auto state = std::make_unique<State>();
  require<UsageError>(!options.model.empty(), "upscaler: expected a file, or lanczos, bicubic or nearest");
  state->filter = filter_named(options.model);
  if (state->filter) {
    state->info = filter_info(options.model);
    return Upscaler(std::move(state));
  }
  Device& device = device_named(options.device);
  state->network =
      std::make_unique<ImageUpscaler>(device, options.model, upscaler_dtype(device, options.dtype));
  const ImageUpscaler& net = *state->network;
  state->info = {net.name(),       net.config().name(), static_cast<int>(net.config().factor()),
                 net.parameters(), device.name(),       concat(net.dtype())};
  return Upscaler(std::move(state));
}

Image Upscaler::upscale(const Image& image, const UpscaleRequest& request, const Callbacks& callbacks) {
  require<UsageError>(request.factor >= 0 && request.factor <= kMaxFactor, "factor: expected 0 to ",
                      kMaxFactor, ", got ", request.factor);
  const double factor = request.factor > 0 ? request.factor : state_->info.factor;
  const PictureSize size = target_size(image, factor, request.width, request.height);
  if (state_->filter) return resized(image, size, *state_->filter);
  const auto begin = std::chrono::steady_clock::now();
  int first = 0;  // steps of earlier passes
  const auto step = [&](int64_t done, int64_t all) {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    const bool go_on =
        !callbacks.progress || callbacks.progress({"upscale", first + static_cast<int>(done),
                                                   first + static_cast<int>(all), time.count()});
    if (done == all) first += static_cast<int>(all);
    return go_on;
  };
  const RunWatch watch{nullptr, callbacks.cancelled ? &callbacks.cancelled : nullptr};
  return enlarged(*state_->network, image, size, request.tiles, watch, step);
}

}  // namespace rocm_sd
