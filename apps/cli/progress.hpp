// Progress on standard error: tqdm's line on a terminal, elsewhere one line per picture (or per step: plain),
// or one JSON object a line.
#pragma once

#include <string>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd::cli {

enum class ProgressStyle { kAuto, kBar, kLine, kPlain, kJson, kNone };

// "auto", "bar", "line", "plain", "json", "none"; throws UsageError else.
ProgressStyle parse_progress_style(const std::string& name);

// tqdm's form: " 35%|###5      | 7/20 [00:03<00:05,  2.31it/s]", s/it below one step a second.
std::string progress_line(const Progress& progress);

class ProgressPrinter {
 public:
  explicit ProgressPrinter(ProgressStyle style);
  void operator()(const Progress& progress);
  void finish();                        // ends an open bar
  int lines() const { return lines_; }  // that it has ended so far

 private:
  ProgressStyle style_;
  bool open_ = false;
  int lines_ = 0;
  std::string stage_;
};

}  // namespace rocm_sd::cli
