// libFuzzer: any bytes as a picture with parameters, and any text as parameters.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/infotext.hpp"
#include "rocm_sd/image.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);
  try {
    rocm_sd::parse_infotext(rocm_sd::read_parameters(bytes, "input"));
    rocm_sd::decode_image(bytes, "input");
  } catch (const rocm_sd::Error&) {
  }
  const std::string text(bytes.begin(), bytes.end());
  const rocm_sd::Infotext once = rocm_sd::parse_infotext(text);
  rocm_sd::parse_infotext(rocm_sd::format_infotext(once));
  return 0;
}
