#include "pipeline/sheet.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/paths.hpp"
#include "base/utf8.hpp"

namespace rocm_sd {
namespace {

constexpr int kMargin = 4;                     // pixels around each picture
constexpr int kFirstGlyph = 32, kGlyphs = 95;  // printable ASCII
constexpr uint8_t kBackground = 255;

// A strip of kGlyphs cells of equal width, dark on white.
struct Font {
  Image strip = load_image(share_path("font/label.png").string());
  int glyph_width() const { return strip.width / kGlyphs; }
};

struct Place {
  int x = 0, y = 0;
};

void paste(Image& sheet, const Image& from, int from_x, int width, Place to) {
  for (int y = 0; y < from.height; ++y) {
    const auto* source = &from.rgb[3 * (static_cast<size_t>(y) * static_cast<size_t>(from.width) +
                                        static_cast<size_t>(from_x))];
    const size_t target =
        3 * (static_cast<size_t>(to.y + y) * static_cast<size_t>(sheet.width) + static_cast<size_t>(to.x));
    std::copy_n(source, 3 * width, sheet.rgb.begin() + static_cast<ptrdiff_t>(target));
  }
}

// One character per code point, those without a glyph as '?'.
std::string printable_ascii(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    const bool has_glyph = c.code_point >= kFirstGlyph && c.code_point < kFirstGlyph + kGlyphs;
    out += has_glyph ? static_cast<char>(c.code_point) : '?';
    i += c.length;
  }
  return out;
}

// Breaks into at most two lines at spaces.
std::vector<std::string> wrap(const std::string& text, size_t columns) {
  if (text.size() <= columns) return {text};
  size_t cut = text.rfind(' ', columns);
  if (cut == std::string::npos || cut == 0) cut = columns;
  std::string rest = text.substr(cut + (text[cut] == ' ' ? 1 : 0));
  if (rest.size() > columns) rest = rest.substr(0, columns - std::min<size_t>(columns, 2)) + "..";
  return {text.substr(0, cut), rest};
}

}  // namespace

Image make_sheet(std::span<const Image> pictures, std::span<const std::string> labels, int columns) {
  require<UsageError>(!pictures.empty() && columns > 0,
                      "sheet: expected at least one picture and one column");
  const int width = pictures[0].width, height = pictures[0].height;
  for (const Image& p : pictures)
    require<UsageError>(p.width == width && p.height == height, "sheet: pictures of ", width, " x ", height,
                        " and ", p.width, " x ", p.height);
  const Font font;
  constexpr int kLabelLines = 2;
  const int label_height = labels.empty() ? 0 : kLabelLines * font.strip.height;
  const int cell_width = width + 2 * kMargin, cell_height = height + 2 * kMargin + label_height;
  const int rows = (static_cast<int>(pictures.size()) + columns - 1) / columns;
  Image sheet{columns * cell_width, rows * cell_height, {}, {}};
  sheet.rgb.assign(static_cast<size_t>(sheet.width) * static_cast<size_t>(sheet.height) * 3, kBackground);
  for (size_t i = 0; i < pictures.size(); ++i) {
    const Place cell{static_cast<int>(i) % columns * cell_width + kMargin,
                     static_cast<int>(i) / columns * cell_height + kMargin};
    paste(sheet, pictures[i], 0, width, cell);
    if (i >= labels.size()) continue;
    int y = cell.y + height + 2;
    for (const std::string& line :
         wrap(printable_ascii(labels[i]), static_cast<size_t>(width / font.glyph_width()))) {
      int x = cell.x;
      for (const char c : line) {
        paste(sheet, font.strip, (c - kFirstGlyph) * font.glyph_width(), font.glyph_width(), {x, y});
        x += font.glyph_width();
      }
      y += font.strip.height;
    }
  }
  return sheet;
}

}  // namespace rocm_sd
