#include "apps/cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace rocm_sd::cli {
namespace {

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<long long>(seconds);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

void print_json(const Progress& p) {
  nlohmann::json line{{"stage", p.stage}, {"step", p.step}, {"total", p.total}, {"seconds", p.seconds}};
  if (!p.device.empty()) line["device"] = p.device;
  fmt::print(stderr, "{}\n", line.dump());
}

}  // namespace

ProgressStyle parse_progress_style(const std::string& name) {
  if (name == "auto") return ProgressStyle::kAuto;
  if (name == "bar") return ProgressStyle::kBar;
  if (name == "line") return ProgressStyle::kLine;
  if (name == "plain") return ProgressStyle::kPlain;
  if (name == "json") return ProgressStyle::kJson;
  if (name == "none") return ProgressStyle::kNone;
  throw UsageError("progress: expected auto, bar, line, plain, json or none, got \"" + name + "\"");
}

std::string progress_line(const Progress& p) {
  const double fraction = p.total > 0 ? std::clamp(static_cast<double>(p.step) / p.total, 0.0, 1.0) : 0;
  const double rate = p.seconds > 0 ? p.step / p.seconds : 0;
  constexpr int kWidth = 10;
  const int tenths = static_cast<int>(fraction * kWidth * 10);  // a digit shows tenths of the next '#'
  std::string bar(static_cast<size_t>(tenths / 10), '#');
  if (tenths / 10 < kWidth && tenths % 10 > 0) bar += static_cast<char>('0' + tenths % 10);
  bar.resize(kWidth, ' ');
  const std::string speed = rate <= 0   ? "?it/s"
                            : rate >= 1 ? fmt::format("{:5.2f}it/s", rate)
                                        : fmt::format("{:5.2f}s/it", 1 / rate);
  const std::string left = rate > 0 ? clock_text((p.total - p.step) / rate) : "?";
  return fmt::format("{:3.0f}%|{}| {}/{} [{}<{}, {}]", std::floor(100 * fraction), bar, p.step, p.total,
                     clock_text(p.seconds), left, speed);
}

ProgressPrinter::ProgressPrinter(ProgressStyle style) : style_(style) {
  if (style_ == ProgressStyle::kAuto)
    style_ = isatty(STDERR_FILENO) ? ProgressStyle::kBar : ProgressStyle::kLine;
}

void ProgressPrinter::operator()(const Progress& p) {
  switch (style_) {
    case ProgressStyle::kNone:
    case ProgressStyle::kAuto: return;
    case ProgressStyle::kJson:
      print_json(p);
      ++lines_;
      return;
    case ProgressStyle::kLine:
      if (p.stage != "sample" || p.step < p.total) return;
      [[fallthrough]];
    case ProgressStyle::kPlain:
      fmt::print(stderr, "{}{}{}: {}\n", p.device, p.device.empty() ? "" : " ", p.stage, progress_line(p));
      ++lines_;
      return;
    case ProgressStyle::kBar:
      if (!p.device.empty()) {  // several at once: a line for each picture, as without a terminal
        if (p.stage == "sample" && p.step >= p.total) {
          fmt::print(stderr, "{} {}: {}\n", p.device, p.stage, progress_line(p));
          ++lines_;
        }
        return;
      }
      if (open_ && p.stage != stage_) finish();
      stage_ = p.stage;
      fmt::print(stderr, "\r{:<6} {}\x1b[K", p.stage, progress_line(p));
      std::fflush(stderr);
      open_ = true;
      if (p.step >= p.total) finish();
  }
}

void ProgressPrinter::finish() {
  if (open_) {
    fmt::print(stderr, "\n");
    ++lines_;
  }
  open_ = false;
}

}  // namespace rocm_sd::cli
