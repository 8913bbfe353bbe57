// PNG. libpng reads: its errors leave by longjmp, so the function that decodes owns nothing with a
// destructor; text and EXIF come by a bounded walk of our own, so that no callback can jump. Chunks are
// written here, and their pixels are compressed in png_pixels.cpp.
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "pipeline/images/codecs.hpp"

namespace rocm_sd::images {
namespace {

constexpr uint8_t kSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr uint8_t kPerceptual = 0;  // the rendering intent of an sRGB chunk
constexpr std::string_view kParameters = "parameters", kReceipt = "rocm-sd";

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

// The text of one tEXt, zTXt or iTXt chunk if it has this keyword (PNG specification 11.3.4).
std::optional<std::string> chunk_text(std::string_view type, Bytes data, std::string_view keyword) {
  const auto nul = [&](size_t from) {
    const auto it =
        std::find(data.begin() + static_cast<ptrdiff_t>(std::min(from, data.size())), data.end(), 0);
    return static_cast<size_t>(it - data.begin());
  };
  const auto text_from = [&](size_t at) {
    return std::string_view(reinterpret_cast<const char*>(data.data()) + at, data.size() - at);
  };
  const size_t key_end = nul(0);
  if (key_end != keyword.size() || std::memcmp(data.data(), keyword.data(), key_end) != 0)
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

void append_chunk(std::vector<uint8_t>& out, std::string_view type, Bytes data) {
  append_big_endian(out, static_cast<uint32_t>(data.size()));
  const size_t start = out.size();
  out.insert(out.end(), type.begin(), type.end());
  out.insert(out.end(), data.begin(), data.end());
  append_big_endian(
      out, static_cast<uint32_t>(crc32(0, out.data() + start, static_cast<uInt>(out.size() - start))));
}

Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// As Pillow: tEXt where Latin-1 can hold the text, else iTXt.
void append_text_chunk(std::vector<uint8_t>& out, std::string_view keyword, const std::string& text) {
  if (text.empty()) return;
  std::string latin1;
  bool fits = true;
  for (size_t i = 0; i < text.size() && fits;) {
    const Utf8Char c = decode_utf8(text, i);
    fits = c.valid && c.code_point < 256 && c.code_point != 0;
    latin1 += static_cast<char>(c.code_point);
    i += c.length;
  }
  const std::string key(keyword);
  if (fits)
    append_chunk(out, "tEXt", bytes_of(key + '\0' + latin1));
  else
    append_chunk(out, "iTXt", bytes_of(key + std::string("\0\0\0\0\0", 5) + sanitize_utf8(text)));
}

// What is read so far, and what libpng said; in reach of its callbacks.
struct Source {
  Bytes bytes;
  size_t at = 0;
  char message[200] = "";
};

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto& source = *static_cast<Source*>(png_get_io_ptr(png));
  if (count > source.bytes.size() - source.at) png_error(png, "the file is cut short");
  std::memcpy(to, source.bytes.data() + source.at, count);
  source.at += count;
}
void keep_error(png_structp png, png_const_charp text) {
  auto& source = *static_cast<Source*>(png_get_error_ptr(png));
  std::strncpy(source.message, text, sizeof(source.message) - 1);
  png_longjmp(png, 1);
}
void ignore_warning(png_structp, png_const_charp) {}

struct Decoded {
  int64_t width = 0, height = 0;
  bool has_alpha = false;
  uint8_t* rgba = nullptr;    // malloc'd
  png_bytep* rows = nullptr;  // malloc'd: where each row lies in it
};

// Eight bits a sample as the file has them: of 16 bits the high eight, as Pillow reads them, and no gamma.
// The caller frees what `out` has, whatever comes back.
bool decode(Source& source, Decoded& out) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, keep_error, ignore_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  if (!info || setjmp(png_jmpbuf(png))) {
    png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  png_set_read_fn(png, &source, read_bytes);
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);  // the size is checked below, with its own message
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(png, info);
  out.width = png_get_image_width(png, info);
  out.height = png_get_image_height(png, info);
  if (out.width <= kMaxPixels && out.height <= kMaxPixels && out.width * out.height <= kMaxPixels) {
    const int type = png_get_color_type(png, info);
    out.has_alpha = (type & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(png, info, PNG_INFO_tRNS) != 0;
    png_set_expand(png);  // palettes, grey below 8 bits, tRNS
    png_set_strip_16(png);
    if ((type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
    png_set_add_alpha(png, 0xff, PNG_FILLER_AFTER);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    const auto height = static_cast<size_t>(out.height), row = static_cast<size_t>(out.width) * 4;
    if (png_get_rowbytes(png, info) != row) png_error(png, "unknown layout of pixels");
    out.rgba = static_cast<uint8_t*>(std::calloc(height, row));
    out.rows = static_cast<png_bytep*>(std::calloc(height, sizeof(png_bytep)));
    if (!out.rgba || !out.rows) png_error(png, "no memory");
    for (size_t y = 0; y < height; ++y) out.rows[y] = out.rgba + y * row;
    png_read_image(png, out.rows);
    png_read_end(png, nullptr);
  }
  png_destroy_read_struct(&png, &info, nullptr);
  return true;
}

// The data of the chunks of a file in order, until `take(type, data)` returns true.
template <class Take>
void walk_chunks(Bytes bytes, const Take& take) {
  for (size_t at = sizeof(kSignature); bytes.size() >= at + 12;) {
    const size_t length = big_endian(&bytes[at]);
    if (length > bytes.size() - at - 12) break;
    const std::string_view type(reinterpret_cast<const char*>(&bytes[at + 4]), 4);
    if (length <= kMaxTextBytes && take(type, bytes.subspan(at + 8, length))) break;
    at += 12 + length;
  }
}

int orientation_of(Bytes bytes) {
  int orientation = 1;
  walk_chunks(bytes, [&](std::string_view type, Bytes data) {
    if (type == "eXIf") orientation = parse_exif(data).orientation;
    return type == "eXIf";
  });
  return orientation;
}

}  // namespace

Image decode_png(Bytes bytes, const std::string& name) {
  Source source{bytes};
  Decoded d;
  const bool ok = decode(source, d);
  const std::unique_ptr<uint8_t, decltype(&std::free)> pixels(d.rgba, &std::free);
  const std::unique_ptr<png_bytep, decltype(&std::free)> rows(d.rows, &std::free);
  require<FormatError>(ok, name, ": not a readable PNG (", printable(source.message), ")");
  require_size(d.width, d.height, name);
  Image out{static_cast<int>(d.width), static_cast<int>(d.height), {}, {}};
  const size_t count = static_cast<size_t>(d.width) * static_cast<size_t>(d.height);
  out.rgb.resize(count * 3);
  if (d.has_alpha) out.alpha.resize(count);
  for (size_t i = 0; i < count; ++i) {
    std::copy_n(d.rgba + 4 * i, 3, &out.rgb[3 * i]);
    if (d.has_alpha) out.alpha[i] = d.rgba[4 * i + 3];
  }
  return upright(out, orientation_of(bytes));
}

std::vector<uint8_t> encode_png(const Image& image, const FileTexts& texts) {
  const std::vector<std::vector<uint8_t>> pixels = png_pixels(image);
  std::vector<uint8_t> header;
  append_big_endian(header, static_cast<uint32_t>(image.width));
  append_big_endian(header, static_cast<uint32_t>(image.height));
  constexpr uint8_t kForm[] = {8, 2, 0, 0, 0};  // bits, RGB, deflate, filters by row, not interlaced
  header.insert(header.end(), std::begin(kForm), std::end(kForm));
  std::vector<uint8_t> out(std::begin(kSignature), std::end(kSignature));
  append_chunk(out, "IHDR", header);
  append_text_chunk(out, kParameters, texts.parameters);
  append_text_chunk(out, kReceipt, texts.receipt);
  append_chunk(out, "sRGB", Bytes(&kPerceptual, 1));
  for (const std::vector<uint8_t>& piece : pixels) append_chunk(out, "IDAT", piece);
  append_chunk(out, "IEND", {});
  return out;
}

FileTexts png_texts(Bytes bytes, const std::string& name) {
  require<FormatError>(bytes.size() >= 8 && std::memcmp(bytes.data(), kSignature, 8) == 0, name,
                       ": not a PNG");
  std::optional<std::string> parameters, receipt;  // the first of each
  walk_chunks(bytes, [&](std::string_view type, Bytes data) {
    if (!parameters) parameters = chunk_text(type, data, kParameters);
    if (!receipt) receipt = chunk_text(type, data, kReceipt);
    return parameters && receipt;
  });
  return {parameters.value_or(""), receipt.value_or("")};
}

}  // namespace rocm_sd::images
