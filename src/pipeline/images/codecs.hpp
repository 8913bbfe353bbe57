// The three codecs behind load_image and save_image, and the metadata containers they use.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rocm_sd/image.hpp"

namespace rocm_sd::images {

using Bytes = std::span<const uint8_t>;

constexpr int64_t kMaxPixels = int64_t{64} << 20;
constexpr size_t kMaxFileBytes = 50'000'000;
constexpr size_t kMaxTextBytes = 4 << 20;  // of one metadata text, also after decompression

// Throws FormatError naming the picture unless both sides are positive and their product is within
// kMaxPixels.
void require_size(int64_t width, int64_t height, const std::string& name);

Image decode_png(Bytes bytes, const std::string& name);
// The texts that a file carries beside its picture; empty: none.
struct FileTexts {
  std::string parameters, receipt;
};

// The image as zlib's stream of a PNG's filtered rows, in pieces for an IDAT chunk each.
std::vector<std::vector<uint8_t>> png_pixels(const Image& image);
std::vector<uint8_t> encode_png(const Image& image, const FileTexts& texts);
FileTexts png_texts(Bytes bytes, const std::string& name);

Image decode_jpeg(Bytes bytes, const std::string& name);
std::vector<uint8_t> encode_jpeg(const Image& image, int quality, const FileTexts& texts);
FileTexts jpeg_texts(Bytes bytes);

Image decode_webp(Bytes bytes, const std::string& name);
std::vector<uint8_t> encode_webp(const Image& image, int quality, const FileTexts& texts);
FileTexts webp_texts(Bytes bytes);

// EXIF (a TIFF structure, without the "Exif\0\0" prefix): orientation 1..8, the user comment as UTF-8, and
// the maker note where it is a receipt.
struct Exif {
  int orientation = 1;
  FileTexts texts;
};
Exif parse_exif(Bytes tiff);  // never throws: damaged EXIF reads as empty
// UserComment as "UNICODE\0" + UTF-16BE, as A1111 writes it; MakerNote as "rocm-sd\0" + UTF-8.
std::vector<uint8_t> make_exif(const FileTexts& texts);

// Turns the picture so that orientation (EXIF 1..8) becomes 1.
Image upright(const Image& image, int orientation);

}  // namespace rocm_sd::images
