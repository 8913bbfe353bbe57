// Pictures in memory and on disk: 8-bit RGB, PNG, JPEG and WebP, with the generation parameters they carry.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rocm_sd {

// 8-bit RGB, rows from the top, 3 bytes a pixel without padding.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;    // [height,width,3]
  std::vector<uint8_t> alpha;  // [height,width], or empty where the file had none
};

enum class ImageFormat { kPng, kJpeg, kWebp };

struct ImageWriteOptions {
  int quality = 95;        // JPEG and WebP, 1..100; 100 makes WebP lossless
  std::string parameters;  // UTF-8; PNG text chunk "parameters", JPEG and WebP EXIF UserComment; empty: none
  // UTF-8; PNG text chunk "rocm-sd", JPEG and WebP EXIF MakerNote, left out of a JPEG that has no room for it
  // (64 KiB with the parameters); empty: none.
  std::string receipt = {};
};

// The format that a file name's ending asks for (.png .jpg .jpeg .webp, any case). Throws UsageError for
// others.
ImageFormat image_format_of(const std::string& path);

// Reads a picture, applying its EXIF orientation; 16-bit, palette, grey, interlaced and CMYK files become
// 8-bit RGB. Limits: 50 MB and 64 megapixels. Throws FileError or FormatError with the path.
Image load_image(const std::string& path);
Image decode_image(const std::vector<uint8_t>& bytes, const std::string& name);

std::vector<uint8_t> encode_image(const Image& image, ImageFormat format, const ImageWriteOptions& options);
// Writes to a temporary file in the same folder, then renames it: no broken file is ever left under the name.
// Throws FileError.
void save_image(const Image& image, const std::string& path, const ImageWriteOptions& options);

// The `parameters` text of a PNG, JPEG or WebP file, or "" where it has none. Throws as load_image.
std::string read_parameters(const std::string& path);
std::string read_parameters(const std::vector<uint8_t>& bytes, const std::string& name);

// The receipt that the file carries (what `rocm-sd reproduce` draws it again from), or "". Throws as
// load_image.
std::string read_receipt(const std::string& path);
std::string read_receipt(const std::vector<uint8_t>& bytes, const std::string& name);

}  // namespace rocm_sd
