// config.json of every model class: whatever the bytes, a configuration whose model can be laid out, or an
// Error.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "models/clip.hpp"
#include "models/configs.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"

namespace {

using namespace rocm_sd;

// A configuration that was accepted must give a model of a sane size without further checks.
template <class Read, class Lay>
void check(Read read, Lay lay) {
  try {
    if (lay(read()) <= 0) std::abort();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nlohmann::json json;
  try {
    json = parse_json({reinterpret_cast<const char*>(data), size}, {.max_bytes = 1 << 16}, "fuzz");
  } catch (const Error&) {
    return 0;
  }
  check([&] { return unet_config(json, "fuzz"); },
        [](const UNetConfig& c) { return count_parameters(UNet(c)); });
  check([&] { return vae_config(json, "fuzz"); },
        [](const VaeConfig& c) { return count_parameters(VaeDecoder(c)) + count_parameters(VaeEncoder(c)); });
  check([&] { return taesd_config(json, "fuzz"); },
        [](const TaesdConfig& c) {
          return count_parameters(TaesdDecoder(c)) + count_parameters(TaesdEncoder(c));
        });
  check([&] { return clip_config(json, "fuzz"); },
        [](const ClipConfig& c) { return count_parameters(ClipTextModel(c)); });
  return 0;
}
