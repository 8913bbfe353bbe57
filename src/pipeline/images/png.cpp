// PNG through libpng's simplified API; text chunks by a bounded walk of our own, so that no callback can
// jump.
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "pipeline/images/codecs.hpp"

namespace rocm_sd::images {
namespace {

constexpr uint8_t kSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr std::string_view kKeyword = "parameters";

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}
void append_big_endian(std::vector<uint8_t>& out, uint32_t v) {
  for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<uint8_t>(v >> shift));
}

std::string inflate_text(Bytes data) {
  std::string out(1 << 16, '\0');
  z_stream z{};
  if (inflateInit(&z) != Z_OK) return "";
  z.next_in = const_cast<uint8_t*>(data.data());
  z.avail_in = static_cast<uInt>(data.size());
  size_t written = 0;
  int status = Z_OK;
  while (status == Z_OK && written < kMaxTextBytes) {
    out.resize(std::max(out.size(), written + (1 << 16)));
    z.next_out = reinterpret_cast<uint8_t*>(out.data()) + written;
    z.avail_out = static_cast<uInt>(out.size() - written);
    status = inflate(&z, Z_NO_FLUSH);
    written = out.size() - z.avail_out;
    if (z.avail_in == 0 && status == Z_OK && z.avail_out > 0) break;
  }
  inflateEnd(&z);
  out.resize(status == Z_STREAM_END ? written : 0);  // a bomb or a damaged stream gives nothing
  return out;
}

std::string latin1_to_utf8(std::string_view text) {
  std::string out;
  for (const char c : text) append_utf8(out, static_cast<unsigned char>(c));
  return out;
}

// The text of one tEXt, zTXt or iTXt chunk if its keyword is ours (PNG specification 11.3.4).
std::optional<std::string> chunk_text(std::string_view type, Bytes data) {
  const auto nul = [&](size_t from) {
    const auto it =
        std::find(data.begin() + static_cast<ptrdiff_t>(std::min(from, data.size())), data.end(), 0);
    return static_cast<size_t>(it - data.begin());
  };
  const auto text_from = [&](size_t at) {
    return std::string_view(reinterpret_cast<const char*>(data.data()) + at, data.size() - at);
  };
  const size_t key_end = nul(0);
  if (key_end != kKeyword.size() || std::memcmp(data.data(), kKeyword.data(), key_end) != 0)
    return std::nullopt;
  if (key_end >= data.size()) return std::nullopt;
  if (type == "tEXt") return latin1_to_utf8(text_from(key_end + 1));
  if (type == "zTXt") {
    if (key_end + 2 > data.size() || data[key_end + 1] != 0) return std::nullopt;
    return latin1_to_utf8(inflate_text(data.subspan(key_end + 2)));
  }
  if (type != "iTXt" || key_end + 3 > data.size()) return std::nullopt;
  const bool compressed = data[key_end + 1] == 1;
  const size_t language_end = nul(key_end + 3);
  const size_t translated_end = nul(language_end + 1);
  if (translated_end >= data.size()) return std::nullopt;
  if (compressed) return sanitize_utf8(inflate_text(data.subspan(translated_end + 1)));
  return sanitize_utf8(text_from(translated_end + 1));
}

void append_chunk(std::vector<uint8_t>& out, std::string_view type, const std::string& data) {
  append_big_endian(out, static_cast<uint32_t>(data.size()));
  const size_t start = out.size();
  out.insert(out.end(), type.begin(), type.end());
  out.insert(out.end(), data.begin(), data.end());
  append_big_endian(
      out, static_cast<uint32_t>(crc32(0, out.data() + start, static_cast<uInt>(out.size() - start))));
}

// As Pillow: tEXt where Latin-1 can hold the text, else iTXt.
void append_text_chunk(std::vector<uint8_t>& out, const std::string& text) {
  std::string latin1;
  bool fits = true;
  for (size_t i = 0; i < text.size() && fits;) {
    const Utf8Char c = decode_utf8(text, i);
    fits = c.valid && c.code_point < 256 && c.code_point != 0;
    latin1 += static_cast<char>(c.code_point);
    i += c.length;
  }
  const std::string key(kKeyword);
  if (fits)
    append_chunk(out, "tEXt", key + '\0' + latin1);
  else
    append_chunk(out, "iTXt", key + std::string("\0\0\0\0\0", 5) + sanitize_utf8(text));
}

struct PngReader {
  png_image image{};
  PngReader() { image.version = PNG_IMAGE_VERSION; }
  ~PngReader() { png_image_free(&image); }
};

}  // namespace

Image decode_png(Bytes bytes, const std::string& name) {
  PngReader reader;
  png_image& png = reader.image;
  require<FormatError>(png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) != 0, name,
                       ": not a readable PNG (", png.message, ")");
  require_size(png.width, png.height, name);
  const bool has_alpha = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  png.format = PNG_FORMAT_RGBA;
  std::vector<uint8_t> rgba(size_t{png.width} * png.height * 4);
  require<FormatError>(png_image_finish_read(&png, nullptr, rgba.data(), 0, nullptr) != 0, name,
                       ": damaged PNG (", png.message, ")");
  Image out{static_cast<int>(png.width), static_cast<int>(png.height), {}, {}};
  const size_t pixels = rgba.size() / 4;
  out.rgb.resize(pixels * 3);
  if (has_alpha) out.alpha.resize(pixels);
  for (size_t i = 0; i < pixels; ++i) {
    std::copy_n(&rgba[4 * i], 3, &out.rgb[3 * i]);
    if (has_alpha) out.alpha[i] = rgba[4 * i + 3];
  }
  return out;
}

std::vector<uint8_t> encode_png(const Image& image, const std::string& parameters) {
  PngReader writer;
  png_image& png = writer.image;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::vector<uint8_t> plain(size);
  const int ok = png_image_write_to_memory(&png, plain.data(), &size, 0, image.rgb.data(), 0, nullptr);
  require<InternalError>(ok != 0, "PNG encoding failed: ", png.message);
  plain.resize(size);
  if (parameters.empty()) return plain;
  constexpr size_t kAfterHeader = 8 + 12 + 13;  // signature and IHDR
  std::vector<uint8_t> out(plain.begin(), plain.begin() + kAfterHeader);
  append_text_chunk(out, parameters);
  out.insert(out.end(), plain.begin() + kAfterHeader, plain.end());
  return out;
}

std::string png_parameters(Bytes bytes, const std::string& name) {
  require<FormatError>(bytes.size() >= 8 && std::memcmp(bytes.data(), kSignature, 8) == 0, name,
                       ": not a PNG");
  for (size_t at = 8; bytes.size() - at >= 12;) {
    const size_t length = big_endian(&bytes[at]);
    if (length > bytes.size() - at - 12) break;
    const std::string_view type(reinterpret_cast<const char*>(&bytes[at + 4]), 4);
    if (length <= kMaxTextBytes)
      if (auto text = chunk_text(type, bytes.subspan(at + 8, length))) return *text;
    at += 12 + length;
  }
  return "";
}

}  // namespace rocm_sd::images
