#include "server/admission.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/error.hpp"
#include "base/format.hpp"
#include "server/http.hpp"

namespace rocm_sd::server {
namespace {

// A step's tensors grow with the pixels; how they are packed into the arena may save a little of that.
constexpr double kSafety = 0.9;

double number_of(const JobRequest& request, std::string_view option, double otherwise) {
  for (const auto& [name, value] : request.options) {
    double number = otherwise;
    if (name == option) std::from_chars(value.data(), value.data() + value.size(), number);
    if (name == option) return number;
  }
  return otherwise;
}

std::string megabytes(uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

}  // namespace

uint64_t least_memory(const JobRequest& request, std::pair<int, int> default_size, const StepMemory& memory) {
  const double width = number_of(request, "width", 0), height = number_of(request, "height", 0);
  const bool sized = width > 0 && height > 0;
  if (!request.enlargement.upscaler.empty() && !request.enlargement.of_drawn) return 0;
  if (number_of(request, "tile-size", 0) > 0 || (!sized && !request.files.empty())) return 0;
  const double pixels =
      (width > 0 ? width : default_size.first) * (height > 0 ? height : default_size.second) * request.batch;
  const bool guided = number_of(request, "cfg-scale", memory.default_guidance) > 1;
  return static_cast<uint64_t>(
      std::max(0.0, kSafety * (memory.base + memory.pixel * pixels * (guided ? 1.0 : 0.5))));
}

void admit(const JobRequest& request, std::pair<int, int> default_size, std::span<const StepMemory> devices) {
  uint64_t needed = 0, available = 0;
  for (const StepMemory& device : devices) {
    if (device.available == 0) return;
    const uint64_t least = least_memory(request, default_size, device);
    if (least <= device.available) return;
    if (device.available < available) continue;
    needed = least;
    available = device.available;
  }
  if (available == 0) return;
  ApiError error{
      422, "out_of_memory",
      concat("memory: expected a request that fits: ",
             request.batch == 1 ? std::string("the image takes") : concat(request.batch, " images take"),
             " at least ", megabytes(needed), " with every saving, the device has ", megabytes(available),
             "; what takes less: a smaller image or batch, tile_size"),
      "width"};
  error.needed = needed;
  error.available = available;
  throw RequestError(std::move(error));
}

}  // namespace rocm_sd::server
