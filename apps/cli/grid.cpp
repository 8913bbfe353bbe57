// rocm-sd grid: one picture for every combination of options' values, on a sheet with labels.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <regex>

#include "apps/cli/commands.hpp"
#include "apps/cli/generate_command.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "pipeline/output_name.hpp"
#include "pipeline/sheet.hpp"

namespace rocm_sd::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReplace = "prompt-sr";  // A1111's "Prompt S/R"
constexpr size_t kMaxValues = 1000;

struct Axis {
  std::string option;  // or kReplace; empty: there is no such axis
  std::vector<std::string> values;

  std::string label(size_t i) const {
    return option.empty() ? "" : option == kReplace ? values[i] : concat(option, ": ", values[i]);
  }
};

struct GridCommand : GenerateCommand {
  std::string x, y, z, cells;
};

// Values between commas; a value in double quotes may hold commas, and "" is a quote.
std::vector<std::string> split_values(const std::string& text, const char* axis) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && quoted && i + 1 < text.size() && text[i + 1] == '"')
      out.back() += text[++i];
    else if (text[i] == '"')
      quoted = !quoted;
    else if (text[i] == ',' && !quoted)
      out.emplace_back();
    else
      out.back() += text[i];
  }
  require<UsageError>(!quoted, axis, ": a quote is not closed");
  for (std::string& value : out) {
    value.erase(0, std::min(value.size(), value.find_first_not_of(' ')));
    value.erase(value.find_last_not_of(' ') + 1);
  }
  return out;
}

// "1-5", "1-10 (+2)", "10-1 (-3)", "0-1 [5]" (five values from end to end), as A1111's script reads them.
std::optional<std::vector<std::string>> range_of(const std::string& text) {
  static const std::regex kRange(
      R"((-?\d+(?:\.\d+)?)\s*-\s*(-?\d+(?:\.\d+)?)(?:\s*\(([+-]\d+(?:\.\d+)?)\)|\s*\[(\d{1,4})\])?)");
  std::smatch match;
  if (!std::regex_match(text, match, kRange)) return std::nullopt;
  const double begin = std::stod(match[1]), end = std::stod(match[2]);
  const bool whole = text.find('.') == std::string::npos && !match[4].matched;
  double step = begin <= end ? 1 : -1;
  size_t count = 0;
  if (match[4].matched) {
    count = static_cast<size_t>(std::stoi(match[4]));
    step = count > 1 ? (end - begin) / static_cast<double>(count - 1) : 0;
  } else {
    if (match[3].matched) step = std::stod(match[3]);
    const double steps = step == 0 ? -1 : (end - begin) / step;
    require<UsageError>(steps >= 0 && steps < static_cast<double>(kMaxValues), "\"", printable(text),
                        "\": a range without an end, or of more than ", kMaxValues, " values");
    count = static_cast<size_t>(steps + 1e-9) + 1;
  }
  std::vector<std::string> out;
  for (size_t i = 0; i < count; ++i) {
    const double value = begin + step * static_cast<double>(i);
    // Seven digits: 0.1 + 2 * 0.1 is 0.3
    out.push_back(whole ? fmt::format("{:.0f}", value) : fmt::format("{:.7g}", value));
  }
  return out;
}

Axis parse_axis(const std::string& text, const char* name) {
  if (text.empty()) return {"", {""}};
  const size_t equals = text.find('=');
  require<UsageError>(equals != text.npos && equals > 0, name,
                      ": expected OPTION=VALUE,VALUE such as steps=10,20, got \"", printable(text), "\"");
  Axis out{text.substr(0, equals), {}};
  std::ranges::replace(out.option, '_', '-');
  for (const std::string& value : split_values(text.substr(equals + 1), name)) {
    const auto range = out.option == kReplace ? std::nullopt : range_of(value);
    for (const std::string& one : range.value_or(std::vector{value})) out.values.push_back(one);
  }
  require<UsageError>(out.values.size() <= kMaxValues, name, ": ", out.values.size(), " values, at most ",
                      kMaxValues);
  if (out.option == kReplace) return out;
  GenerateRequest scratch;
  OptionTargets targets{nullptr, &scratch};
  for (const std::string& value : out.values) set_option(targets, out.option, value);
  require<UsageError>(out.option != "batch" && out.option != "image-prompt", name, ": ", out.option,
                      ": a cell has one picture");
  return out;
}

// The job of a cell: the axes' options, and the prompt with its replacements.
Job cell_job(const std::string& base_prompt, std::initializer_list<std::pair<const Axis*, size_t>> cell) {
  Job job;
  std::string prompt = base_prompt;
  bool replaced = false;
  for (const auto& [axis, i] : cell)
    if (axis->option == "prompt") prompt = axis->values[i];
  for (const auto& [axis, i] : cell) {
    if (axis->option != kReplace) {
      if (!axis->option.empty() && axis->option != "prompt")
        job.set.emplace_back(axis->option, axis->values[i]);
      replaced = replaced || axis->option == "prompt";
      continue;
    }
    const std::string& from = axis->values.front();
    size_t at = prompt.find(from);
    require<UsageError>(!from.empty() && at != prompt.npos, kReplace, ": \"", printable(from),
                        "\" is not in the prompt \"", printable(prompt), "\"");
    for (; at != prompt.npos; at = prompt.find(from, at + axis->values[i].size()))
      prompt.replace(at, from.size(), axis->values[i]);
    replaced = true;
  }
  if (replaced) job.set.emplace_back("prompt", prompt);
  return job;
}

// The cells' own files where nobody wants them.
class CellFolder {
 public:
  CellFolder() {
    std::random_device random;
    path_ = fs::temp_directory_path() / fmt::format("rocm-sd-grid-{:08x}{:08x}", random(), random());
  }
  ~CellFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  CellFolder(const CellFolder&) = delete;
  CellFolder& operator=(const CellFolder&) = delete;
  std::string pattern() const { return (path_ / "{index:05}.png").string(); }

 private:
  fs::path path_;
};

void run_grid(const GridCommand& command) {
  require<UsageError>(!command.x.empty(), "x: expected --x OPTION=VALUE,VALUE");
  require<UsageError>(command.repeat == 1, "repeat: a cell has one picture");
  require<UsageError>(command.journal.empty() || !command.cells.empty(),
                      "journal: give --cells, too, so that the cells are kept");
  require<UsageError>(command.cells.empty() || image_format_of(command.cells) == ImageFormat::kPng,
                      "cells: the sheet is made of them: expected a name that ends in .png");
  const Axis x = parse_axis(command.x, "x"), y = parse_axis(command.y, "y"), z = parse_axis(command.z, "z");
  std::string prompt;
  for (const auto& [row, value] : command.set) {
    if (row->name == std::string_view("prompt")) prompt = value;
    require<UsageError>(row->name != std::string_view("batch") || value == "1",
                        "batch: a cell has one picture");
  }
  std::vector<Job> jobs;
  for (size_t k = 0; k < z.values.size(); ++k)
    for (size_t j = 0; j < y.values.size(); ++j)
      for (size_t i = 0; i < x.values.size(); ++i)
        jobs.push_back(cell_job(prompt, {{&z, k}, {&y, j}, {&x, i}}));
  const auto sheet_name = [&](size_t k) {
    return output_name(command.output, {.index = static_cast<int>(k) + 1,
                                        .count = static_cast<int>(z.values.size()),
                                        .seed = 0,
                                        .model = ""});
  };
  require_writable(sheet_name(0));
  const CellFolder folder;
  GenerateCommand cells = command;
  cells.output = command.cells.empty() ? folder.pattern() : command.cells;
  cells.print_paths = !command.cells.empty();
  const std::vector<std::string> paths = run_generate(cells, jobs);
  if (command.plan_only) return;
  require<UsageError>(paths.size() == jobs.size(), "grid: ", paths.size(), " pictures for ", jobs.size(),
                      " cells: --init-image FOLDER and --prompts-file are generate's");
  AxisLabels labels;
  for (size_t i = 0; i < x.values.size(); ++i) labels.columns.push_back(x.label(i));
  for (size_t j = 0; j < y.values.size(); ++j) labels.rows.push_back(y.label(j));
  const size_t each = x.values.size() * y.values.size();
  for (size_t k = 0; k < z.values.size(); ++k) {
    std::vector<Image> pictures;
    for (size_t i = 0; i < each; ++i) pictures.push_back(load_image(paths[k * each + i]));
    labels.corner = z.label(k);
    const std::string path = sheet_name(k);
    const std::string parameters = command.no_metadata ? "" : read_parameters(paths[k * each]);
    save_image(make_axis_sheet(pictures, labels), path,
               {.quality = command.quality, .parameters = parameters});
    fmt::print("{}\n", path);
  }
}

}  // namespace

void add_grid(CLI::App& app) {
  auto command = std::make_shared<GridCommand>();
  command->output = "out/grid.png";
  CLI::App* sub =
      app.add_subcommand("grid", "a sheet of pictures over the values of one, two or three options");
  const auto add_axis = [&](const char* name, std::string& target, const char* what) {
    add_text(sub, name, target,
             fmt::format(
                 "{}: any option of a picture, or prompt-sr to replace the first value in the prompt by the "
                 "others; 1-10, 1-10 (+3), 0-1 [5] are ranges, values with commas stand in double quotes",
                 what))
        ->type_name("OPTION=V,V")
        ->group("Axes");
  };
  add_axis("--x", command->x, "columns");
  add_axis("--y", command->y, "rows");
  add_axis("--z", command->z, "sheets");
  add_generate_options(sub, command.get());
  add_text(sub, "-o,--output", command->output, "the sheet's file; {index} is its number along --z")
      ->option_text("PATTERN [" + command->output + "]")
      ->group("Output");
  add_text(sub, "--cells", command->cells, "keep each picture, too: a pattern as generate's --output")
      ->type_name("PATTERN")
      ->group("Output");
  take_last(sub);
  sub->callback([command] { run_grid(*command); });
}

}  // namespace rocm_sd::cli
