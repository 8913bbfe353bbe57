// Pictures in terminals: what the environment and the terminal's answers say, the picture's cells, and the
// bytes. tests/integration_tests/test_preview_terminal.py decodes them in a pseudo-terminal.
#include "pipeline/images/terminal.hpp"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "base/base64.hpp"
#include "base/error.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

GetEnvironment of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : it->second.c_str();
  };
}

TEST(TerminalForm, IsToldByTheEnvironment) {
  using enum TerminalForm;
  EXPECT_EQ(terminal_form_of(of({{"TERM", "xterm-kitty"}})), kKitty);
  EXPECT_EQ(terminal_form_of(of({{"TERM", "xterm-256color"}, {"KITTY_WINDOW_ID", "3"}})), kKitty);
  EXPECT_EQ(terminal_form_of(of({{"TERM", "xterm-ghostty"}})), kKitty);
  EXPECT_EQ(terminal_form_of(of({{"TERM", "xterm-256color"}, {"TERM_PROGRAM", "iTerm.app"}})), kIterm);
  EXPECT_EQ(terminal_form_of(of({{"TERM_PROGRAM", "WezTerm"}})), kIterm);
  EXPECT_EQ(terminal_form_of(of({{"LC_TERMINAL", "iTerm2"}})), kIterm);  // over ssh
  EXPECT_EQ(terminal_form_of(of({{"TERM", "xterm-256color"}})), std::nullopt);
  EXPECT_EQ(terminal_form_of(of({})), std::nullopt);
  for (const char* term : {"tmux-256color", "screen"})
    EXPECT_EQ(terminal_form_of(of({{"TERM", term}, {"TERM_PROGRAM", "iTerm.app"}})), std::nullopt);
  EXPECT_EQ(terminal_form_of(of({{"TERM", "xterm-kitty"}, {"TMUX", "/tmp/tmux"}})), std::nullopt);
  for (const char* term : {"", "dumb", "linux"})
    EXPECT_NE(terminal_refusal(of({{"TERM", term}})), "") << term;
  EXPECT_EQ(terminal_refusal(of({{"TERM", "xterm"}})), "");
}

TEST(TerminalAnswer, IsRead) {
  const auto answer = [](std::string_view text) { return read_terminal_answer(text); };
  const TerminalAnswer kitty = answer("\x1b_Gi=31;OK\x1b\\\x1b[6;20;10t\x1b[?62;c");
  EXPECT_TRUE(kitty.complete && kitty.kitty && !kitty.sixel);
  EXPECT_EQ(kitty.cell_height, 20);
  EXPECT_EQ(kitty.cell_width, 10);
  const TerminalAnswer sixel = answer("j\x1b[?63;1;2;4;6;22c");
  EXPECT_TRUE(sixel.complete && sixel.sixel && !sixel.kitty);
  EXPECT_FALSE(answer("\x1b[?4;1;44c").sixel);  // the first number is the terminal's class
  EXPECT_FALSE(answer("\x1b_Gi=31;ENOTSUP\x1b\\\x1b[?62c").kitty);
  EXPECT_FALSE(answer("\x1b_Gi=32;OK\x1b\\\x1b[?62c").kitty);  // of another picture
  for (const char* part : {"", "\x1b", "\x1b[", "\x1b[?", "\x1b[?62;4", "\x1b[?62;4;", "\x1b_Gi=31;OK",
                           "\x1b[?62;x;4c", "\x1b[62;4c", "\x1b[?99999999999c"})
    EXPECT_FALSE(answer(part).complete || answer(part).kitty) << part;
  for (const char* cell : {"\x1b[6;0;10t", "\x1b[6;20;257t", "\x1b[6;20t", "\x1b[8;20;10t", "\x1b[6;-1;3t"})
    EXPECT_EQ(answer(cell).cell_width, 0) << cell;
}

TEST(TerminalPlace, KeepsTheShapeWithinWholeCells) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto number = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
    const Image image{number(1, 300), number(1, 300), {}, {}};
    const int columns = number(1, 200), rows = number(1, 50), cell_width = number(1, 30),
              cell_height = number(1, 60);
    const TerminalPlace place = place_in_terminal(image, columns, rows, cell_width, cell_height);
    ASSERT_TRUE(place.columns >= 1 && place.columns <= columns && place.rows >= 1 && place.rows <= rows);
    // One side is as large as it may be; the other is the shape's, to a cell.
    ASSERT_TRUE(place.columns == columns || place.rows == rows);
    const double shape = static_cast<double>(image.width) / image.height;
    if (place.columns < columns) {
      ASSERT_NEAR(place.columns, std::max(rows * cell_height * shape / cell_width, 1.0), 1);
    } else if (place.rows < rows) {
      ASSERT_NEAR(place.rows, std::max(columns * cell_width / shape / cell_height, 1.0), 1);
    }
  }
}

TEST(TerminalPicture, KittyComesInChunks) {
  std::mt19937 random(1);
  Image image{90, 70, std::vector<uint8_t>(90 * 70 * 3), {}};
  for (uint8_t& v : image.rgb) v = static_cast<uint8_t>(random());
  const std::string out = draw_in_terminal(image, TerminalForm::kKitty, {3, 8, 4, 10, 20}, 2);
  EXPECT_THAT(out, HasSubstr("\x1b[3C"));
  EXPECT_THAT(out, HasSubstr(",c=8,m=1;"));  // 80 x 80 pixels for 90 x 70
  std::string data;
  int last = 1;
  for (size_t at = out.find("\x1b_G"); at != out.npos; at = out.find("\x1b_G", at + 1)) {
    const size_t semicolon = out.find(';', at), end = out.find("\x1b\\", at);
    ASSERT_NE(end, out.npos);
    EXPECT_EQ(last, 1);  // none behind the last one
    last = out[semicolon - 1] - '0';
    EXPECT_LE(end - semicolon - 1, 4096u);
    data += out.substr(semicolon + 1, end - semicolon - 1);
  }
  EXPECT_EQ(last, 0);
  const std::string png = decode_base64(data).value();
  EXPECT_EQ(decode_image({png.begin(), png.end()}, "kitty").rgb, image.rgb);
}

TEST(TerminalPicture, SixelsAreRefusedWhereTheyWereNotBuiltIn) {
  const Image image{2, 1, {255, 0, 0, 0, 0, 255}, {}};
  if (has_sixel())
    EXPECT_THAT(draw_in_terminal(image, TerminalForm::kSixel, {}, 1), HasSubstr("\x1bP"));
  else
    EXPECT_THROW(draw_in_terminal(image, TerminalForm::kSixel, {}, 1), UsageError);
}

}  // namespace
}  // namespace rocm_sd
