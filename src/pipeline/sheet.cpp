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

// Lines of text from a place on, as wide as `width` pixels.
void write_lines(Image& sheet, const Font& font, const std::string& text, Place at, int width) {
  for (const std::string& line :
       wrap(printable_ascii(text), static_cast<size_t>(width / font.glyph_width()))) {
    int x = at.x;
    for (const char c : line) {
      paste(sheet, font.strip, (c - kFirstGlyph) * font.glyph_width(), font.glyph_width(), {x, at.y});
      x += font.glyph_width();
    }
    at.y += font.strip.height;
  }
}

Image white(int width, int height) {
  Image out{width, height, {}, {}};
  out.rgb.assign(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, kBackground);
  return out;
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
  Image sheet = white(columns * cell_width, rows * cell_height);
  for (size_t i = 0; i < pictures.size(); ++i) {
    const Place cell{static_cast<int>(i) % columns * cell_width + kMargin,
                     static_cast<int>(i) / columns * cell_height + kMargin};
    paste(sheet, pictures[i], 0, width, cell);
    if (i < labels.size()) write_lines(sheet, font, labels[i], {cell.x, cell.y + height + 2}, width);
  }
  return sheet;
}

Image make_axis_sheet(std::span<const Image> pictures, const AxisLabels& labels) {
  const size_t columns = labels.columns.size(), rows = labels.rows.size();
  require<UsageError>(!pictures.empty() && pictures.size() == columns * rows, "sheet: ", pictures.size(),
                      " pictures for ", columns, " columns and ", rows, " rows");
  constexpr size_t kMaxRowLabel = 24;  // characters of a line
  const Font font;
  int width = 0, height = 0;
  for (const Image& picture : pictures) {
    width = std::max(width, picture.width);
    height = std::max(height, picture.height);
  }
  size_t longest = std::min(labels.corner.size(), kMaxRowLabel);
  for (const std::string& label : labels.rows)
    longest = std::max(longest, std::min(label.size(), kMaxRowLabel));
  const int left = longest == 0 ? 0 : static_cast<int>(longest) * font.glyph_width() + 2 * kMargin;
  const int top = 2 * font.strip.height + 2 * kMargin;
  const int cell_width = width + 2 * kMargin, cell_height = height + 2 * kMargin;
  Image sheet =
      white(left + static_cast<int>(columns) * cell_width, top + static_cast<int>(rows) * cell_height);
  if (left > 0) write_lines(sheet, font, labels.corner, {kMargin, kMargin}, left - 2 * kMargin);
  for (size_t i = 0; i < pictures.size(); ++i) {
    const int x = left + static_cast<int>(i % columns) * cell_width + kMargin;
    const int y = top + static_cast<int>(i / columns) * cell_height + kMargin;
    if (i < columns) write_lines(sheet, font, labels.columns[i], {x, kMargin}, width);
    if (i % columns == 0 && left > 0)
      write_lines(sheet, font, labels.rows[i / columns], {kMargin, y}, left - 2 * kMargin);
    paste(sheet, pictures[i], 0, pictures[i].width, {x, y});
  }
  return sheet;
}

}  // namespace rocm_sd
