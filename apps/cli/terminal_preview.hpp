// --preview-terminal: previews in the terminal of standard error, above the line of progress.
#pragma once

#include <string>

#include "pipeline/images/terminal.hpp"

namespace rocm_sd::cli {

class TerminalPreview {
 public:
  // form: auto, kitty, iterm or sixel. Throws UsageError: another name, standard error is no terminal, none
  // of the forms was found (auto asks the environment, then the terminal, for at most half a second), or
  // sixel was not built in.
  explicit TerminalPreview(const std::string& form);

  // Draws it in place of the one before. Pictures of a batch (index from 0) stand side by side while there is
  // room; those beyond are left out. lines: that the progress has ended so far; where it ended some since,
  // the picture stands below them.
  void draw(const Image& image, int index, int lines);
  // Something else has been written since: the next picture stands below it.
  void restart() { rows_ = 0; }

 private:
  void measure();

  int descriptor_;
  TerminalForm form_;
  int columns_ = 80, lines_ = 24;         // of the terminal
  int cell_width_ = 0, cell_height_ = 0;  // pixels
  int seen_lines_ = 0;
  int rows_ = 0;  // above the cursor that the pictures have; 0: none yet
};

}  // namespace rocm_sd::cli
