// JPEG through libjpeg. Its errors leave by longjmp, so the functions that call it own nothing with a
// destructor.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <jpeglib.h>

#include <jerror.h>

#include "base/error.hpp"
#include "pipeline/images/codecs.hpp"

namespace rocm_sd::images {
namespace {

struct JumpingError {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

void leave(j_common_ptr info) {
  auto* error = reinterpret_cast<JumpingError*>(info->err);
  error->manager.format_message(info, error->message);
  std::longjmp(error->jump, 1);
}
// A warning (a level below 0) says that pixels were made up: the file is cut short, or its code is broken. A
// few are about what is beside the pixels.
void count_warning(j_common_ptr info, int level) {
  if (level >= 0) return;
  const int code = info->err->msg_code;
  if (code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM) return;
  auto* error = reinterpret_cast<JumpingError*>(info->err);
  if (info->err->num_warnings++ == 0) info->err->format_message(info, error->message);
}

void install(JumpingError& error, jpeg_error_mgr*& slot) {
  slot = jpeg_std_error(&error.manager);
  error.manager.error_exit = leave;
  error.manager.emit_message = count_warning;
}

// Pixels as the file's colour space gives them: 3 channels, or 4 for CMYK. `pixels` grows through the
// callback, outside of the region that longjmp may leave.
struct Decoded {
  int width = 0, height = 0, channels = 0;
  bool inverted_cmyk = false;
  uint8_t* pixels = nullptr;  // malloc'd
};

bool decode(Bytes bytes, int64_t max_pixels, Decoded& out, JumpingError& error) {
  jpeg_decompress_struct info;
  install(error, info.err);
  if (setjmp(error.jump)) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, bytes.data(), bytes.size());
  jpeg_read_header(&info, TRUE);
  out.width = static_cast<int>(info.image_width);
  out.height = static_cast<int>(info.image_height);
  if (int64_t{out.width} * out.height <= max_pixels) {
    const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
    info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    out.channels = cmyk ? 4 : 3;
    out.inverted_cmyk = info.saw_Adobe_marker;
    jpeg_start_decompress(&info);
    const size_t row_bytes = static_cast<size_t>(out.width) * static_cast<size_t>(out.channels);
    out.pixels = static_cast<uint8_t*>(std::calloc(static_cast<size_t>(out.height), row_bytes));
    while (out.pixels && info.output_scanline < info.output_height) {
      JSAMPROW row = out.pixels + info.output_scanline * row_bytes;
      jpeg_read_scanlines(&info, &row, 1);
    }
    // A file cut short decodes with a warning and grey rows; a picture with invented rows is not what was
    // asked for.
    if (info.err->num_warnings > 0) {
      jpeg_destroy_decompress(&info);
      return false;
    }
    jpeg_finish_decompress(&info);
  }
  jpeg_destroy_decompress(&info);
  return true;
}

// `bytes` and `size` are libjpeg's, to be freed by the caller.
bool encode(const Image& image, int quality, const std::vector<uint8_t>& exif, unsigned char*& bytes,
            unsigned long& size, JumpingError& error) {
  jpeg_compress_struct info;
  install(error, info.err);
  if (setjmp(error.jump)) {
    jpeg_destroy_compress(&info);
    return false;
  }
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor =
      quality >= 90 ? 1 : 2;  // 4:4:4 where quality matters
  jpeg_start_compress(&info, TRUE);
  if (!exif.empty()) jpeg_write_marker(&info, JPEG_APP0 + 1, exif.data(), static_cast<unsigned>(exif.size()));
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(
        &image.rgb[static_cast<size_t>(info.next_scanline) * static_cast<size_t>(image.width) * 3]);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  return true;
}

// The APP1 segment that holds EXIF, without its prefix; empty if there is none.
Bytes exif_segment(Bytes bytes) {
  constexpr uint8_t kPrefix[6] = {'E', 'x', 'i', 'f', 0, 0};
  for (size_t at = 2; at + 4 <= bytes.size() && bytes[at] == 0xff;) {
    const uint8_t marker = bytes[at + 1];
    if (marker == 0xda || marker == 0xd9) break;  // pixels begin, or the end
    const size_t length = size_t{bytes[at + 2]} << 8 | bytes[at + 3];
    if (length < 2 || at + 2 + length > bytes.size()) break;
    const Bytes body = bytes.subspan(at + 4, length - 2);
    if (marker == 0xe1 && body.size() > 6 && std::memcmp(body.data(), kPrefix, 6) == 0)
      return body.subspan(6);
    at += 2 + length;
  }
  return {};
}

void append_rgb(std::vector<uint8_t>& rgb, const uint8_t* pixel, const Decoded& d) {
  if (d.channels == 3) {
    rgb.insert(rgb.end(), pixel, pixel + 3);
    return;
  }
  const int black = d.inverted_cmyk ? pixel[3] : 255 - pixel[3];
  for (int c = 0; c < 3; ++c)
    rgb.push_back(static_cast<uint8_t>((d.inverted_cmyk ? pixel[c] : 255 - pixel[c]) * black / 255));
}

}  // namespace

Image decode_jpeg(Bytes bytes, const std::string& name) {
  Decoded d;
  JumpingError error{};
  const bool ok = decode(bytes, kMaxPixels, d, error);
  const std::unique_ptr<uint8_t, decltype(&std::free)> pixels(d.pixels, &std::free);
  require<FormatError>(ok, name, ": not a readable JPEG: damaged or cut short (", error.message, ")");
  require_size(d.width, d.height, name);
  require<OutOfMemoryError>(pixels != nullptr, name, ": no memory for ", d.width, " x ", d.height, " pixels");
  Image out{d.width, d.height, {}, {}};
  const size_t count = static_cast<size_t>(d.width) * static_cast<size_t>(d.height);
  out.rgb.reserve(count * 3);
  for (size_t i = 0; i < count; ++i)
    append_rgb(out.rgb, pixels.get() + i * static_cast<size_t>(d.channels), d);
  return upright(out, parse_exif(exif_segment(bytes)).orientation);
}

std::vector<uint8_t> encode_jpeg(const Image& image, int quality, const FileTexts& texts) {
  std::vector<uint8_t> exif;
  if (!texts.parameters.empty() || !texts.receipt.empty()) {
    constexpr size_t kMaxSegment = 65533;
    exif = {'E', 'x', 'i', 'f', 0, 0};
    std::vector<uint8_t> tiff = make_exif(texts);
    if (exif.size() + tiff.size() > kMaxSegment) tiff = make_exif({texts.parameters, ""});
    exif.insert(exif.end(), tiff.begin(), tiff.end());
    require<UsageError>(exif.size() <= kMaxSegment, "the parameters text is too long for a JPEG file (",
                        exif.size(), " bytes of ", kMaxSegment, "); write a PNG");
  }
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  JumpingError error{};
  const bool ok = encode(image, quality, exif, bytes, size, error);
  const std::unique_ptr<unsigned char, decltype(&std::free)> owner(bytes, &std::free);
  require<InternalError>(ok, "JPEG encoding failed: ", error.message);
  return {bytes, bytes + size};
}

FileTexts jpeg_texts(Bytes bytes) { return parse_exif(exif_segment(bytes)).texts; }

}  // namespace rocm_sd::images
