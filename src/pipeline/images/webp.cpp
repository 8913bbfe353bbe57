// WebP through libwebp and libwebpmux.
#include <webp/decode.h>
#include <webp/encode.h>
#include <webp/mux.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "pipeline/images/codecs.hpp"

namespace rocm_sd::images {
namespace {

struct MuxDeleter {
  void operator()(WebPMux* mux) const { WebPMuxDelete(mux); }
};
using Mux = std::unique_ptr<WebPMux, MuxDeleter>;

std::vector<uint8_t> exif_chunk(Bytes bytes) {
  const WebPData data{bytes.data(), bytes.size()};
  const Mux mux(WebPMuxCreate(&data, 0));
  WebPData chunk{};
  if (!mux || WebPMuxGetChunk(mux.get(), "EXIF", &chunk) != WEBP_MUX_OK) return {};
  std::vector<uint8_t> out(chunk.bytes, chunk.bytes + chunk.size);
  constexpr uint8_t kPrefix[6] = {'E', 'x', 'i', 'f', 0, 0};  // some writers keep JPEG's prefix
  if (out.size() > 6 && std::equal(kPrefix, kPrefix + 6, out.begin()))
    out.erase(out.begin(), out.begin() + 6);
  return out;
}

}  // namespace

Image decode_webp(Bytes bytes, const std::string& name) {
  WebPBitstreamFeatures features;
  require<FormatError>(WebPGetFeatures(bytes.data(), bytes.size(), &features) == VP8_STATUS_OK, name,
                       ": not a readable WebP");
  require<FormatError>(!features.has_animation, name,
                       ": animated WebP is not supported; expected a still picture");
  require_size(features.width, features.height, name);
  Image out{features.width, features.height, {}, {}};
  const size_t pixels = static_cast<size_t>(features.width) * static_cast<size_t>(features.height);
  std::vector<uint8_t> rgba(pixels * 4);
  const uint8_t* decoded =
      WebPDecodeRGBAInto(bytes.data(), bytes.size(), rgba.data(), rgba.size(), features.width * 4);
  require<FormatError>(decoded != nullptr, name, ": damaged or truncated WebP");
  out.rgb.resize(pixels * 3);
  if (features.has_alpha) out.alpha.resize(pixels);
  for (size_t i = 0; i < pixels; ++i) {
    std::copy_n(&rgba[4 * i], 3, &out.rgb[3 * i]);
    if (features.has_alpha) out.alpha[i] = rgba[4 * i + 3];
  }
  return upright(out, parse_exif(exif_chunk(bytes)).orientation);
}

std::vector<uint8_t> encode_webp(const Image& image, int quality, const FileTexts& texts) {
  require<UsageError>(image.width <= WEBP_MAX_DIMENSION && image.height <= WEBP_MAX_DIMENSION,
                      "a WebP side is at most ", WEBP_MAX_DIMENSION, " pixels, the picture is ", image.width,
                      " x ", image.height, "; write a PNG");
  uint8_t* encoded = nullptr;
  const int stride = image.width * 3;
  const size_t size =
      quality >= 100 ? WebPEncodeLosslessRGB(image.rgb.data(), image.width, image.height, stride, &encoded)
                     : WebPEncodeRGB(image.rgb.data(), image.width, image.height, stride,
                                     static_cast<float>(quality), &encoded);
  const std::unique_ptr<uint8_t, decltype(&WebPFree)> owner(encoded, &WebPFree);
  require<OutOfMemoryError>(size > 0, "WebP encoding failed for ", image.width, " x ", image.height,
                            " pixels");
  if (texts.parameters.empty() && texts.receipt.empty()) return {encoded, encoded + size};
  const Mux mux(WebPMuxNew());
  const WebPData picture{encoded, size};
  const std::vector<uint8_t> exif = make_exif(texts);
  const WebPData chunk{exif.data(), exif.size()};
  WebPData assembled{};
  const bool ok = mux && WebPMuxSetImage(mux.get(), &picture, 1) == WEBP_MUX_OK &&
                  WebPMuxSetChunk(mux.get(), "EXIF", &chunk, 1) == WEBP_MUX_OK &&
                  WebPMuxAssemble(mux.get(), &assembled) == WEBP_MUX_OK;
  std::vector<uint8_t> out;
  if (ok) out.assign(assembled.bytes, assembled.bytes + assembled.size);
  WebPDataClear(&assembled);
  require<InternalError>(ok, "WebP: cannot attach the parameters");
  return out;
}

FileTexts webp_texts(Bytes bytes) { return parse_exif(exif_chunk(bytes)).texts; }

}  // namespace rocm_sd::images
