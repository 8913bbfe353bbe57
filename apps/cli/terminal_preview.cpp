#include "apps/cli/terminal_preview.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rocm_sd::cli {
namespace {

constexpr int kRows = 16, kLeastRows = 2;         // of a picture
constexpr int kCellWidth = 10, kCellHeight = 20;  // where the terminal does not tell
constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr size_t kMaxAnswer = 4096;

const char* environment(const char* name) { return std::getenv(name); }

void write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd ready{descriptor, POLLOUT, 0};
      poll(&ready, 1, 1000);
      continue;
    }
    if (written <= 0) return;  // the terminal is gone: the picture goes on without
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

// The terminal's name opened anew for reading: standard error may be open for writing alone.
class Line {
 public:
  explicit Line(int terminal) {
    const char* name = ttyname(terminal);
    descriptor_ = name != nullptr ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    if (descriptor_ < 0) return;
    // A process in the background is stopped when it changes or reads its terminal.
    const pid_t foreground = tcgetpgrp(descriptor_);
    usable_ = (foreground < 0 || foreground == getpgrp()) && tcgetattr(descriptor_, &before_) == 0;
    if (!usable_) return;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    usable_ = tcsetattr(descriptor_, TCSANOW, &raw) == 0;
  }
  ~Line() {
    if (usable_) tcsetattr(descriptor_, TCSANOW, &before_);
    if (descriptor_ >= 0) close(descriptor_);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  TerminalAnswer ask() const {
    if (!usable_) return {};
    write_all(descriptor_, kTerminalQuestion);
    std::string bytes;
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (bytes.size() < kMaxAnswer && !read_terminal_answer(bytes).complete) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      pollfd readable{descriptor_, POLLIN, 0};
      if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) <= 0) break;
      char some[256];
      const ssize_t count = read(descriptor_, some, sizeof some);
      if (count <= 0) break;
      bytes.append(some, static_cast<size_t>(count));
    }
    return read_terminal_answer(bytes);
  }

 private:
  int descriptor_ = -1;
  bool usable_ = false;
  termios before_{};
};

std::optional<TerminalForm> form_named(const std::string& name) {
  for (const TerminalForm form : {TerminalForm::kKitty, TerminalForm::kIterm, TerminalForm::kSixel})
    if (name == terminal_form_name(form)) return form;
  require<UsageError>(name == "auto", "preview-terminal: expected auto, kitty, iterm or sixel, got \"",
                      printable(name), "\"");
  return std::nullopt;
}

}  // namespace

TerminalPreview::TerminalPreview(const std::string& form)
    : descriptor_(STDERR_FILENO), form_(TerminalForm::kKitty) {
  std::optional<TerminalForm> found = form_named(form);
  require<UsageError>(
      isatty(descriptor_),
      "preview-terminal: standard error is no terminal; --preview-path writes previews to a file");
  if (!found) {
    const std::string refusal = terminal_refusal(environment);
    require<UsageError>(
        refusal.empty(), "preview-terminal: ", refusal,
        "; expected a terminal of kitty's graphics, iTerm2's images or sixels, or one of them by name");
    found = terminal_form_of(environment);
  }
  if (!found) {
    const TerminalAnswer answer = Line(descriptor_).ask();
    cell_width_ = answer.cell_width;
    cell_height_ = answer.cell_height;
    if (answer.kitty) found = TerminalForm::kKitty;
    if (!found && answer.sixel) found = TerminalForm::kSixel;
    require<UsageError>(found.has_value(), "preview-terminal: the terminal ",
                        answer.complete ? "knows neither kitty's graphics nor sixels" : "did not answer",
                        ", and the environment names none that can show pictures; expected one that can, or "
                        "kitty, iterm or sixel by name");
  }
  require<UsageError>(
      *found != TerminalForm::kSixel || has_sixel(),
      "preview-terminal: this program was built without libsixel, which sixel needs (libsixel-dev)");
  form_ = *found;
}

void TerminalPreview::measure() {
  winsize size{};
  if (ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    columns_ = size.ws_col;
    lines_ = size.ws_row;
    if (size.ws_xpixel >= size.ws_col && size.ws_ypixel >= size.ws_row) {
      cell_width_ = size.ws_xpixel / size.ws_col;
      cell_height_ = size.ws_ypixel / size.ws_row;
    }
  }
  if (cell_width_ <= 0 || cell_height_ <= 0) {
    cell_width_ = kCellWidth;
    cell_height_ = kCellHeight;
  }
}

void TerminalPreview::draw(const Image& image, int index, int lines) {
  if (lines != seen_lines_) restart();
  seen_lines_ = lines;
  measure();
  const int rows = rows_ > 0 ? rows_ : std::clamp(lines_ - 2, kLeastRows, kRows);
  TerminalPlace place = place_in_terminal(image, columns_, rows, cell_width_, cell_height_);
  place.column = index * (place.columns + 1);
  if (place.column + place.columns > columns_) return;
  std::string out = "\r";
  if (rows_ == 0) {
    rows_ = place.rows;
    out += "\x1b[K" + std::string(static_cast<size_t>(rows_), '\n');  // scrolls where it must
  }
  out += concat("\x1b[", rows_, "A", draw_in_terminal(image, form_, place, index + 1), "\x1b[", rows_, "B\r");
  write_all(descriptor_, out);
}

}  // namespace rocm_sd::cli
