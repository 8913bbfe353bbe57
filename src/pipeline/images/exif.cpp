// The EXIF fields that matter here (EXIF 2.32: Orientation 0x0112, UserComment 0x9286, MakerNote 0x927c),
// read from hostile bytes.
#include <algorithm>
#include <cstring>

#include "base/utf8.hpp"
#include "pipeline/images/codecs.hpp"

namespace rocm_sd::images {
namespace {

constexpr uint16_t kOrientation = 0x0112, kExifIfd = 0x8769, kMakerNote = 0x927c, kUserComment = 0x9286;
constexpr std::string_view kMaker("rocm-sd\0", 8);

// Reads that give 0 outside of the data.
struct TiffReader {
  Bytes data;
  bool big_endian = false;

  uint32_t read(size_t at, int count) const {
    if (at > data.size() || data.size() - at < static_cast<size_t>(count)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < count; ++i)
      value |= uint32_t{data[at + static_cast<size_t>(i)]} << 8 * (big_endian ? count - 1 - i : i);
    return value;
  }
  // The offset of the 12-byte entry with this tag in the directory at `ifd`, or 0.
  size_t find(size_t ifd, uint16_t tag) const {
    const uint32_t entries = read(ifd, 2);
    for (uint32_t i = 0; i < entries; ++i) {
      const size_t entry = ifd + 2 + 12 * size_t{i};
      if (entry + 12 > data.size()) break;
      if (read(entry, 2) == tag) return entry;
    }
    return 0;
  }
};

std::string utf16_to_utf8(Bytes text, bool big_endian) {
  const auto unit = [&](size_t i) -> uint32_t {
    return big_endian ? uint32_t{text[i]} << 8 | text[i + 1] : uint32_t{text[i + 1]} << 8 | text[i];
  };
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    char32_t c = unit(i);
    if (c >= 0xd800 && c < 0xdc00 && i + 3 < text.size() && unit(i + 2) >= 0xdc00 && unit(i + 2) < 0xe000) {
      c = 0x10000 + ((c - 0xd800) << 10) + (unit(i + 2) - 0xdc00);
      i += 2;
    }
    append_utf8(out, c);
  }
  return out;
}

std::string decode_comment(Bytes comment, bool file_big_endian) {
  if (comment.size() < 8) return "";
  const Bytes text = comment.subspan(8);
  if (std::memcmp(comment.data(), "UNICODE\0", 8) == 0) {
    // The byte order is the file's by the standard, but A1111 (piexif) always writes big endian: English text
    // tells.
    size_t zero_first = 0, zero_second = 0;
    for (size_t i = 0; i + 1 < text.size(); i += 2)
      zero_first += text[i] == 0, zero_second += text[i + 1] == 0;
    return utf16_to_utf8(text, zero_first == zero_second ? file_big_endian : zero_first > zero_second);
  }
  std::string out(reinterpret_cast<const char*>(text.data()), text.size());
  out.erase(std::find(out.begin(), out.end(), '\0'), out.end());
  return sanitize_utf8(out);
}

void append_be(std::vector<uint8_t>& out, uint32_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<uint8_t>(value >> 8 * i));
}
void append_entry(std::vector<uint8_t>& out, uint16_t tag, uint16_t type, uint32_t count, uint32_t value) {
  append_be(out, tag, 2);
  append_be(out, type, 2);
  append_be(out, count, 4);
  append_be(out, value, 4);
}

}  // namespace

Exif parse_exif(Bytes tiff) {
  Exif out;
  if (tiff.size() < 8) return out;
  const TiffReader reader{tiff, tiff[0] == 'M'};
  const size_t ifd = reader.read(4, 4);
  if (const size_t entry = reader.find(ifd, kOrientation)) {
    const uint32_t orientation = reader.read(entry + 8, 2);
    if (orientation >= 1 && orientation <= 8) out.orientation = static_cast<int>(orientation);
  }
  if (const size_t pointer = reader.find(ifd, kExifIfd)) {
    const auto bytes_of = [&](uint16_t tag) -> Bytes {
      const size_t entry = reader.find(reader.read(pointer + 8, 4), tag);
      if (entry == 0) return {};
      const size_t count = reader.read(entry + 4, 4), offset = reader.read(entry + 8, 4);
      const bool inside =
          count > 4 && count <= kMaxTextBytes && offset <= tiff.size() && count <= tiff.size() - offset;
      return inside ? tiff.subspan(offset, count) : Bytes();
    };
    out.texts.parameters = decode_comment(bytes_of(kUserComment), reader.big_endian);
    const Bytes note = bytes_of(kMakerNote);
    const std::string_view text(reinterpret_cast<const char*>(note.data()), note.size());
    if (text.starts_with(kMaker)) out.texts.receipt = sanitize_utf8(text.substr(kMaker.size()));
  }
  return out;
}

namespace {

std::vector<uint8_t> user_comment(const std::string& comment) {
  std::vector<uint8_t> text = {'U', 'N', 'I', 'C', 'O', 'D', 'E', 0};
  for (size_t i = 0; i < comment.size();) {
    const Utf8Char c = decode_utf8(comment, i);
    const uint32_t code = c.valid ? c.code_point : 0xfffd;
    if (code >= 0x10000) {
      append_be(text, 0xd800 + ((code - 0x10000) >> 10), 2);
      append_be(text, 0xdc00 + ((code - 0x10000) & 0x3ff), 2);
    } else {
      append_be(text, code, 2);
    }
    i += c.length;
  }
  return text;
}

}  // namespace

std::vector<uint8_t> make_exif(const FileTexts& texts) {
  struct Field {
    uint16_t tag;
    std::vector<uint8_t> bytes;
  };
  std::vector<Field> fields;  // by tag
  if (!texts.receipt.empty()) {
    fields.push_back({kMakerNote, {kMaker.begin(), kMaker.end()}});
    fields.back().bytes.insert(fields.back().bytes.end(), texts.receipt.begin(), texts.receipt.end());
  }
  if (!texts.parameters.empty()) fields.push_back({kUserComment, user_comment(texts.parameters)});
  std::vector<uint8_t> out = {'M', 'M', 0, 42, 0, 0, 0, 8};
  append_be(out, 1, 2);  // IFD0: one entry, at 8
  append_entry(out, kExifIfd, 4, 1, 26);
  append_be(out, 0, 4);
  append_be(out, static_cast<uint32_t>(fields.size()), 2);  // EXIF IFD, at 26
  size_t at = 26 + 2 + 12 * fields.size() + 4;
  for (const Field& field : fields) {
    append_entry(out, field.tag, 7, static_cast<uint32_t>(field.bytes.size()), static_cast<uint32_t>(at));
    at += field.bytes.size();
  }
  append_be(out, 0, 4);
  for (const Field& field : fields) out.insert(out.end(), field.bytes.begin(), field.bytes.end());
  return out;
}

Image upright(const Image& image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool swapped = orientation >= 5;
  Image out{swapped ? image.height : image.width, swapped ? image.width : image.height, {}, {}};
  out.rgb.resize(image.rgb.size());
  out.alpha.resize(image.alpha.size());
  // Where the upright pixel (x, y) stands in the file, for each of the eight ways to hold a camera.
  const auto source = [&](int x, int y) {
    const int w = image.width - 1, h = image.height - 1;
    switch (orientation) {
      case 2: return std::pair(w - x, y);
      case 3: return std::pair(w - x, h - y);
      case 4: return std::pair(x, h - y);
      case 5: return std::pair(y, x);
      case 6: return std::pair(y, h - x);
      case 7: return std::pair(w - y, h - x);
      default: return std::pair(w - y, x);
    }
  };
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x) {
      const auto [sx, sy] = source(x, y);
      const size_t to = static_cast<size_t>(y) * static_cast<size_t>(out.width) + static_cast<size_t>(x);
      const size_t from =
          static_cast<size_t>(sy) * static_cast<size_t>(image.width) + static_cast<size_t>(sx);
      std::copy_n(&image.rgb[3 * from], 3, &out.rgb[3 * to]);
      if (!image.alpha.empty()) out.alpha[to] = image.alpha[from];
    }
  return out;
}

}  // namespace rocm_sd::images
