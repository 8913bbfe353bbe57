// Fuzzes what a terminal answers: any bytes are read, and what is told stays within its bounds. A prefix of
// an answer is never complete where the whole is not.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "pipeline/images/terminal.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const rocm_sd::TerminalAnswer whole = rocm_sd::read_terminal_answer(bytes);
  const auto in_bounds = [](int cell) { return cell >= 0 && cell <= 256; };
  if (!in_bounds(whole.cell_width) || !in_bounds(whole.cell_height)) std::abort();
  if ((whole.cell_width == 0) != (whole.cell_height == 0)) std::abort();
  const rocm_sd::TerminalAnswer part = rocm_sd::read_terminal_answer(bytes.substr(0, size / 2));
  if ((part.complete && !whole.complete) || (part.kitty && !whole.kitty) || (part.sixel && !whole.sixel))
    std::abort();
  return 0;
}
