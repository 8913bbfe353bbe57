#include "pipeline/images/terminal.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "pipeline/pillow_resize.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kChunk = 4096;  // bytes of base64 in a command of kitty's, at most
constexpr std::string_view kKittyAnswer = "\x1b_Gi=31;", kEnd = "\x1b\\";
constexpr int kMaxCell = 256;

std::string text_of(const GetEnvironment& get, const char* name) {
  const char* value = get(name);
  return value != nullptr ? value : "";
}

bool in_multiplexer(const GetEnvironment& get) {
  const std::string term = text_of(get, "TERM");
  return !text_of(get, "TMUX").empty() || term.starts_with("screen") || term.starts_with("tmux");
}

// The numbers of "1;2;3", 0 where one is left out; nothing where there is another character.
std::optional<std::vector<int>> numbers_of(std::string_view text) {
  std::vector<int> out;
  while (true) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool left_out = text.empty() || text.front() == ';';
    if (error != std::errc() && !left_out) return std::nullopt;
    out.push_back(value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return out;
    if (text.front() != ';' || out.size() > 64) return std::nullopt;
    text.remove_prefix(1);
  }
}

std::string png_of(const Image& image) {
  const std::vector<uint8_t> bytes = encode_image(image, ImageFormat::kPng, {});
  return encode_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string kitty(const Image& image, const TerminalPlace& place, int number) {
  const std::string data = png_of(image);
  // One side in cells: the terminal keeps the shape.
  const bool by_rows = int64_t{place.columns} * place.cell_width * image.height >=
                       int64_t{place.rows} * place.cell_height * image.width;
  std::string out;
  for (size_t at = 0; at < data.size(); at += kChunk) {
    const bool more = at + kChunk < data.size();
    out += "\x1b_G";
    // a=T: send and show; f=100: PNG; q=2: answer nothing; C=1: leave the cursor.
    if (at == 0)
      out += concat("a=T,f=100,t=d,q=2,C=1,i=", 4000 + number, ",p=1,",
                    by_rows ? "r=" : "c=", by_rows ? place.rows : place.columns, ",");
    out += concat("m=", more ? 1 : 0, ";", data.substr(at, kChunk), kEnd);
  }
  return out;
}

std::string iterm(const Image& image, const TerminalPlace& place) {
  const std::string data = png_of(image);
  const size_t bytes = data.size() / 4 * 3 - static_cast<size_t>(std::ranges::count(data, '='));
  return concat("\x1b]1337;File=inline=1;size=", bytes, ";width=", place.columns, ";height=", place.rows,
                ";preserveAspectRatio=1:", data, "\x07");
}

std::string sixel(const Image& image, const TerminalPlace& place) {
  const double scale = std::min(static_cast<double>(place.columns) * place.cell_width / image.width,
                                static_cast<double>(place.rows) * place.cell_height / image.height);
  Image scaled{std::max(static_cast<int>(image.width * scale), 1),
               std::max(static_cast<int>(image.height * scale), 1),
               {},
               {}};
  scaled.rgb = pillow_resize(image.rgb, image.width, image.height, 3, scaled.width, scaled.height,
                             PillowFilter::kBicubic);
  return encode_sixel(scaled);
}

}  // namespace

const std::string_view kTerminalQuestion = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[16t\x1b[c";

std::string_view terminal_form_name(TerminalForm form) {
  switch (form) {
    case TerminalForm::kKitty: return "kitty";
    case TerminalForm::kIterm: return "iterm";
    case TerminalForm::kSixel: return "sixel";
  }
  return "?";
}

std::optional<TerminalForm> terminal_form_of(const GetEnvironment& get) {
  if (in_multiplexer(get)) return std::nullopt;
  const std::string term = text_of(get, "TERM"), program = text_of(get, "TERM_PROGRAM");
  if (term == "xterm-kitty" || term == "xterm-ghostty" || !text_of(get, "KITTY_WINDOW_ID").empty() ||
      program == "ghostty")
    return TerminalForm::kKitty;
  if (program == "iTerm.app" || program == "WezTerm" || program == "mintty" ||
      text_of(get, "LC_TERMINAL") == "iTerm2")
    return TerminalForm::kIterm;
  return std::nullopt;
}

std::string terminal_refusal(const GetEnvironment& get) {
  const std::string term = text_of(get, "TERM");
  if (term.empty()) return "TERM is not set";
  if (term == "dumb" || term == "linux") return concat("TERM is ", term, ", a terminal of text alone");
  return {};
}

TerminalAnswer read_terminal_answer(std::string_view bytes) {
  TerminalAnswer out;
  for (size_t at = bytes.find('\x1b'); at != bytes.npos; at = bytes.find('\x1b', at + 1)) {
    std::string_view rest = bytes.substr(at);
    if (rest.starts_with(kKittyAnswer)) {
      rest.remove_prefix(kKittyAnswer.size());
      const size_t end = rest.find(kEnd);
      if (end != rest.npos) out.kitty |= rest.substr(0, end) == "OK";
      continue;
    }
    if (!rest.starts_with("\x1b[")) continue;
    const size_t end = rest.find_first_not_of("?0123456789;", 2);
    if (end == rest.npos) continue;
    const bool attributes = rest[end] == 'c' && rest[2] == '?';
    if (!attributes && rest[end] != 't') continue;
    const std::optional<std::vector<int>> numbers =
        numbers_of(rest.substr(attributes ? 3 : 2, end - (attributes ? 3 : 2)));
    if (!numbers) continue;
    if (attributes) {
      out.complete = true;
      out.sixel |= std::find(numbers->begin() + 1, numbers->end(), 4) != numbers->end();
    } else if (numbers->size() == 3 && numbers->front() == 6) {
      const int height = (*numbers)[1], width = (*numbers)[2];
      const bool usable = std::min(height, width) >= 1 && std::max(height, width) <= kMaxCell;
      out.cell_height = usable ? height : 0;
      out.cell_width = usable ? width : 0;
    }
  }
  return out;
}

TerminalPlace place_in_terminal(const Image& image, int columns, int rows, int cell_width, int cell_height) {
  TerminalPlace place{0, std::max(columns, 1), std::max(rows, 1), cell_width, cell_height};
  const double shape = static_cast<double>(image.width) / image.height;
  const double wide = static_cast<double>(place.columns) * cell_width,
               high = static_cast<double>(place.rows) * cell_height;
  // Rounded up, so that a picture never covers less than its cells; sides of a cell at least.
  if (wide / high > shape)
    place.columns = std::clamp(static_cast<int>(std::ceil(high * shape / cell_width)), 1, place.columns);
  else
    place.rows = std::clamp(static_cast<int>(std::ceil(wide / shape / cell_height)), 1, place.rows);
  return place;
}

std::string draw_in_terminal(const Image& image, TerminalForm form, const TerminalPlace& place, int number) {
  std::string out = "\x1b\x37";  // keeps the cursor's place
  if (place.column > 0) out += concat("\x1b[", place.column, "C");
  switch (form) {
    case TerminalForm::kKitty: out += kitty(image, place, number); break;
    case TerminalForm::kIterm: out += iterm(image, place); break;
    case TerminalForm::kSixel: out += sixel(image, place); break;
  }
  return out + "\x1b\x38";
}

}  // namespace rocm_sd
