// Pictures in terminals: which form a terminal takes, and the bytes that draw one.
//   kitty   the kitty graphics protocol (sw.kovidgoyal.net/kitty/graphics-protocol): PNG in base64, in chunks
//   iterm   iTerm2's inline images (iterm2.com/documentation-images.html): PNG in base64, whole
//   sixel   DEC's sixels, 256 colours with diffused error, by libsixel
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rocm_sd/image.hpp"

namespace rocm_sd {

enum class TerminalForm { kKitty, kIterm, kSixel };

std::string_view terminal_form_name(TerminalForm form);  // "kitty", "iterm", "sixel"
// Whether this program was built with libsixel.
bool has_sixel();

// What the environment tells of its terminal, by the variables that terminals set; nothing inside tmux and
// screen, which pass neither of the first two forms on. get: std::getenv's.
using GetEnvironment = std::function<const char*(const char*)>;
std::optional<TerminalForm> terminal_form_of(const GetEnvironment& get);
// Why a terminal is not even asked ("TERM is linux, ..."); empty: it may be.
std::string terminal_refusal(const GetEnvironment& get);

// Asks for kitty's graphics, a cell's size in pixels and, last, the primary device attributes (DA1), which
// every terminal answers.
extern const std::string_view kTerminalQuestion;

struct TerminalAnswer {
  bool complete = false;  // the answer to the last question is there
  bool kitty = false, sixel = false;
  int cell_width = 0, cell_height = 0;  // pixels; 0: not told, or out of 1..256
};
// From what a terminal sent so far, keys of the user among it.
TerminalAnswer read_terminal_answer(std::string_view bytes);

// Where and how large: cells.
struct TerminalPlace {
  int column = 0;                         // from 0
  int columns = 1, rows = 1;              // that the picture fills
  int cell_width = 10, cell_height = 20;  // pixels
};
// The largest place of the picture's shape of at most rows x columns, whose sides are whole cells, rounded
// up.
TerminalPlace place_in_terminal(const Image& image, int columns, int rows, int cell_width, int cell_height);

// The bytes that draw it from the cursor's row downwards and leave the cursor where it was: the place's rows
// must be there below it. number: of the picture on the screen, from 1; a later one of the same number takes
// its place. Throws UsageError for sixel where it was not built in.
std::string draw_in_terminal(const Image& image, TerminalForm form, const TerminalPlace& place, int number);

// The sixels of RGB pixels [height,width,3].
std::string encode_sixel(const Image& image);

}  // namespace rocm_sd
