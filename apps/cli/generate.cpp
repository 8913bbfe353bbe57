// rocm-sd generate: prompts to picture files.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>

#include "apps/cli/background_tuning.hpp"
#include "apps/cli/commands.hpp"
#include "apps/cli/generate_report.hpp"
#include "apps/cli/interrupt.hpp"
#include "apps/cli/option_notes.hpp"
#include "apps/cli/progress.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/utf8.hpp"
#include "pipeline/latents_file.hpp"
#include "pipeline/options.hpp"
#include "pipeline/output_name.hpp"
#include "pipeline/sheet.hpp"
#include "rocm_sd/multi.hpp"
#include "scaling/launcher.hpp"
#include "text/prompt.hpp"

namespace rocm_sd::cli {
namespace {

struct GenerateCommand {
  std::vector<std::pair<const OptionRow*, std::string>> set;  // in the order given
  std::string output = "out/{index:05}-{seed}.png";
  std::string config, prompts_file, grid, progress = "auto", trace, preview_path = "preview.png";
  int quality = 95, repeat = 1, threads = 0;
  double tune = 0;  // seconds after each picture
  bool profile = false, no_metadata = false, grid_labels = false, plan_only = false, quiet = false;
};

// Files of options and prompts: more bytes than that are a mistake.
constexpr uint64_t kMaxConfigBytes = 1 << 20, kMaxPromptsBytes = 64 << 20;
constexpr int64_t kMaxPictures = 10'000'000;

std::vector<std::string> read_prompts(const std::string& path) {
  std::string text = read_file(path, kMaxPromptsBytes);
  const std::string problem = utf8_problem(text);
  require<FormatError>(problem.empty(), printable(path), ": ", problem, "; expected text, one prompt a line");
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // a byte order mark
  const auto control = std::find_if(text.begin(), text.end(), [](unsigned char c) {
    return c < 0x20 && c != '\n' && c != '\r' && c != '\t';
  });
  require<FormatError>(control == text.end(), printable(path), ": control byte ",
                       control == text.end() ? 0 : int{*control}, " at offset ", control - text.begin(),
                       "; expected text, one prompt a line");
  std::istringstream file(std::move(text));
  std::vector<std::string> prompts;
  constexpr size_t kMaxPrompts = 10000;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    require<UsageError>(prompts.size() < kMaxPrompts, printable(path), ": at most ", kMaxPrompts, " prompts");
    const auto characters =
        std::count_if(line.begin(), line.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; });
    require<UsageError>(characters <= static_cast<ptrdiff_t>(kMaxPromptChars), printable(path), ": line ",
                        number, " has ", characters, " characters; a prompt has at most ", kMaxPromptChars);
    prompts.push_back(line);
  }
  require<FormatError>(!prompts.empty(), printable(path), ": no prompts; expected one a line");
  return prompts;
}

// "4x4" -> 4 columns; the rows follow from the pictures.
int grid_columns(const std::string& grid) {
  const size_t x = grid.find('x');
  try {
    const auto columns = parse_integer(grid.substr(0, x), 1, 64);
    if (x != std::string::npos) parse_integer(grid.substr(x + 1), 1, 64);
    return static_cast<int>(columns);
  } catch (const UsageError&) {
    throw UsageError(concat("grid: expected COLUMNSxROWS such as 4x4, got \"", printable(grid), "\""));
  }
}

std::string default_config_path() {
  const char* home = std::getenv("XDG_CONFIG_HOME");
  if (home && *home) return std::string(home) + "/rocm-sd/config.toml";
  home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.config/rocm-sd/config.toml" : "";
}

// Applies the file's options; those of the command line come after and win. Without a name the user's own
// file is read if it is there.
void read_config(const std::string& asked, OptionTargets& targets, std::set<std::string>& names) {
  const std::string path = asked.empty() ? default_config_path() : asked;
  if (asked.empty() && (path.empty() || !path_exists(path))) return;
  require<UsageError>(path_exists(path), "config: cannot open ", printable(path));
  std::string text = read_file(path, kMaxConfigBytes);
  const std::string problem = utf8_problem(text);
  require<FormatError>(problem.empty(), printable(path), ": ", problem);
  std::istringstream file(std::move(text));
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(file)) {
      if (item.name == "++" || item.name == "--") continue;  // a section begins or ends
      std::string name = item.name;
      std::replace(name.begin(), name.end(), '_', '-');
      require<UsageError>(item.inputs.size() == 1, name, ": expected one value");
      set_option(targets, name, item.inputs.front());
      names.insert(name);
    }
  } catch (const Error& e) {
    throw UsageError(concat(printable(path), ": ", e.what()));
  }
}

class Run {
 public:
  explicit Run(const GenerateCommand& command)
      : command_(command), printer_(parse_progress_style(command.progress)), quiet_(command.quiet) {}

  void operator()() {
    LoadOptions load;
    OptionTargets targets{&load, &request_};
    std::set<std::string> chosen;  // by the command line or the config file
    read_config(command_.config, targets, chosen);
    for (const auto& [row, value] : command_.set) {
      set_option(targets, row->name, value);
      given_.insert(row->name);
      chosen.insert(row->name);
    }
    require<UsageError>(!load.model.empty(), "model: expected --model PATH");
    require<UsageError>(request_.prompts.empty() || command_.prompts_file.empty(),
                        "image-prompt, prompts-file: expected one of them");
    if (!request_.prompts.empty() && request_.batch == 1)
      request_.batch = static_cast<int>(std::min<size_t>(request_.prompts.size(), 64));
    std::vector<std::string> prompts = {request_.prompt};
    if (!command_.prompts_file.empty()) prompts = read_prompts(command_.prompts_file);
    const int64_t total = static_cast<int64_t>(prompts.size()) * command_.repeat * request_.batch;
    require<UsageError>(total <= kMaxPictures, "at most ", kMaxPictures, " pictures a run, not ", total);
    total_ = static_cast<int>(total);
    const int64_t last_round = int64_t{command_.repeat - 1} * request_.batch;
    require<UsageError>(request_.seed <= std::numeric_limits<int64_t>::max() - last_round,
                        "seed: ", request_.seed, " leaves no seeds for ", command_.repeat, " rounds");
    if (!command_.grid.empty()) columns_ = grid_columns(command_.grid);
    // A bad pattern, and files that cannot be written, fail now.
    const OutputName first{.index = 1, .count = columns_ > 0 ? 1 : total_, .seed = 0, .model = ""};
    if (!command_.plan_only) require_writable(output_name(command_.output, first));
    if (!command_.trace.empty()) require_writable(command_.trace);

    catch_interrupts();
    callbacks_.progress = [this](const Progress& p) {
      if (!quiet_) printer_(p);
      return true;
    };
    callbacks_.cancelled = interrupted;
    callbacks_.planned = [this](const MemoryPlan& plan) { show_plan(plan); };
    callbacks_.preview = [this](const Preview& preview) { save_preview(preview); };
    try {
      if (!load.devices.empty()) refuse_with_devices();
      if (asks_for_ranks(load.devices)) follow_rank_0(load);
      if (command_.tune > 0) tuning_.emplace(load.device, command_.tune, callbacks_.cancelled);
      MultiPipeline pipeline = MultiPipeline::load(load, callbacks_);
      drawers_ = pipeline.drawers().size();
      if (command_.profile || !command_.trace.empty()) pipeline.enable_profiling();
      use_proposal(pipeline.default_request(), chosen);
      if (!quiet_) print_model(pipeline);
      if (!quiet_) warn_of_options(pipeline.info());
      generate_all(pipeline, prompts);
      finish(pipeline);
    } catch (...) {
      printer_.finish();
      throw;
    }
  }

 private:
  // What the model proposes, where nobody chose.
  void use_proposal(const GenerateRequest& proposed, const std::set<std::string>& chosen) {
    if (!chosen.contains("steps")) request_.steps = proposed.steps;
    if (!chosen.contains("cfg-scale")) request_.cfg_scale = proposed.cfg_scale;
    if (chosen.contains("sampler") || chosen.contains("schedule") || chosen.contains("sigmas")) return;
    request_.sampler = proposed.sampler;
    request_.schedule = proposed.schedule;
  }

  void warn_of_options(const ModelInfo& model) const {
    std::vector<std::string> lines = options_without_effect(given_, request_, model);
    if (command_.grid_labels && columns_ == 0)
      lines.emplace_back("--grid-labels has no effect: there is no --grid");
    if (!command_.prompts_file.empty() && given_.contains("prompt"))
      lines.emplace_back("--prompt has no effect: --prompts-file stands in its place");
    for (const std::string& line : lines) fmt::print(stderr, "warning: {}\n", line);
  }

  void refuse_with_devices() const {
    for (const auto& [name, given] : {std::pair{"tune", command_.tune > 0},
                                      {"trace", !command_.trace.empty()},
                                      {"profile", command_.profile}})
      require<UsageError>(!given, name, ": with --device, not with --devices");
  }

  // Of ranks that draw one image together one speaks and writes.
  void follow_rank_0(const LoadOptions& load) {
    const std::optional<Launch> launch = find_launch([](const char* name) { return std::getenv(name); });
    require<UsageError>(load.split != "images" || columns_ == 0,
                        "grid: one process writes it, and with --devices ranks each writes its own images; "
                        "expected --devices cuda:0,cuda:1 or --split rows");
    quiet_ = launch && launch->rank > 0 && load.split != "images";
  }

  // Every prompt, as often as asked for.
  void generate_all(MultiPipeline& pipeline, const std::vector<std::string>& prompts) {
    const auto rounds = static_cast<size_t>(command_.repeat);
    const auto request_at = [&](size_t index) -> std::optional<GenerateRequest> {
      if (index >= prompts.size() * rounds) return std::nullopt;
      GenerateRequest request = request_;
      request.prompt = prompts[index / rounds];
      if (request.seed >= 0) request.seed += static_cast<int64_t>(index % rounds) * request.batch;
      return request;
    };
    if (command_.plan_only) {
      for (const DevicePlan& one : pipeline.plans(*request_at(0))) {
        planned_ = false;
        show_plan(one.plan, drawers_ > 1 ? one.devices : "");
      }
      return;
    }
    const auto take = [&](size_t index, const GenerateResult& result) {
      printer_.finish();
      if (!quiet_) print_times(result);
      written_ = static_cast<int>(index) * request_.batch;
      for (const Picture& picture : result.pictures)
        keep(picture, prompts[index / rounds], pipeline.info().name);
      if (tuning_) tuning_->spend();
    };
    pipeline.generate_each(request_at, take, callbacks_);
  }

  // The first one: those of further images are the same, as a rule.
  void show_plan(const MemoryPlan& plan, const std::string& device = "") {
    if (!quiet_ && !planned_) print_plan(plan, device);
    planned_ = true;
  }

  void keep(const Picture& picture, const std::string& prompt, const std::string& model) {
    if (columns_ > 0) {
      cells_.push_back(picture.image);
      labels_.push_back(prompt);
      if (first_parameters_.empty()) first_parameters_ = picture.parameters;
      return;
    }
    const std::string path =
        save(picture.image, {++written_, total_, picture.seed, model}, picture.parameters);
    if (picture.latents.empty()) return;
    const double pixels = static_cast<double>(picture.image.width) * picture.image.height;
    const auto scale = std::llround(std::sqrt(4 * pixels / static_cast<double>(picture.latents.size())));
    save_latents(std::filesystem::path(path).replace_extension(".safetensors").string(),
                 {1, picture.image.height / scale, picture.image.width / scale, picture.latents});
  }

  // The first image's under the name as given, the others' with their number.
  void save_preview(const Preview& preview) const {
    std::filesystem::path path = command_.preview_path;
    if (preview.image > 0)
      path.replace_filename(concat(path.stem().string(), "-", preview.image + 1, path.extension().string()));
    save_image(preview.picture, path.string(), {});
  }

  // The path.
  std::string save(const Image& image, const OutputName& name, const std::string& parameters) {
    const std::string path = output_name(command_.output, name);
    save_image(image, path,
               {.quality = command_.quality, .parameters = command_.no_metadata ? "" : parameters});
    fmt::print("{}\n", path);
    std::fflush(stdout);
    return path;
  }

  void finish(MultiPipeline& pipeline) {
    if (!cells_.empty()) {
      const Image sheet =
          make_sheet(cells_, command_.grid_labels ? labels_ : std::vector<std::string>{}, columns_);
      save(sheet, {1, 1, 0, pipeline.info().name}, cells_.size() == 1 ? first_parameters_ : "");
    }
    if (command_.profile) fmt::print(stderr, "{}", pipeline.profile_table());
    if (!command_.trace.empty()) pipeline.write_profile_trace(command_.trace);
  }

  const GenerateCommand& command_;
  GenerateRequest request_;
  ProgressPrinter printer_;
  Callbacks callbacks_;
  std::optional<BackgroundTuning> tuning_;
  std::set<std::string> given_;  // options of the command line, not of the configuration file
  int total_ = 1, written_ = 0, columns_ = 0;
  size_t drawers_ = 1;
  bool planned_ = false, quiet_ = false;
  std::vector<Image> cells_;
  std::vector<std::string> labels_;
  std::string first_parameters_;
};

void add_table_options(CLI::App* sub, GenerateCommand* command) {
  for (const OptionRow& row : option_rows()) {
    const std::string names = std::string(row.short_name[0] ? "-" : "") + row.short_name +
                              (row.short_name[0] ? "," : "") + "--" + row.name;
    CLI::Option* option = nullptr;
    const auto take = [command, &row](const std::string& value) { command->set.emplace_back(&row, value); };
    if (row.value[0] == '\0')
      option = sub->add_flag_callback(names, [take] { take("true"); }, row.help);
    else if (row.repeats)
      option = sub->add_option_function<std::vector<std::string>>(
                      names,
                      [take](const std::vector<std::string>& values) {
                        for (const std::string& value : values) take(value);
                      },
                      row.help)
                   ->type_name(row.value)
                   ->expected(1)
                   ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    else
      option = sub->add_option_function<std::string>(names, take, row.help)->type_name(row.value);
    option->group(row.group);
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App* sub = app.add_subcommand("generate", "make pictures from prompts");
  add_table_options(sub, command.get());
  add_text(sub, "-o,--output", command->output,
           "file name pattern with {index}, {seed}, {model}; ends in .png, .jpg or .webp")
      ->option_text("PATTERN [" + command->output + "]")
      ->group("Output");
  add_number(sub, "--quality", command->quality, "JPEG and WebP, 1 to 100 (WebP 100: lossless) [95]", 1, 100)
      ->option_text("N")
      ->group("Output");
  sub->add_flag("--no-metadata", command->no_metadata, "leave the parameters out of the file")
      ->group("Output");
  add_number(sub, "--repeat", command->repeat, "batches to make, with rising seeds [1]", 1, 10000)
      ->option_text("N")
      ->group("Output");
  add_text(sub, "--prompts-file", command->prompts_file,
           "one prompt a line, in place of --prompt; every line begins with the same seed")
      ->type_name("FILE")
      ->group("Output");
  add_text(sub, "--preview-path", command->preview_path, "file that --preview writes, anew each time")
      ->option_text("FILE [" + command->preview_path + "]")
      ->group("Output");
  add_text(sub, "--grid", command->grid, "one sheet of all pictures")
      ->type_name("COLUMNSxROWS")
      ->group("Output");
  sub->add_flag("--grid-labels", command->grid_labels, "write each prompt below its picture")
      ->group("Output");
  sub->add_option("--progress", command->progress,
                  "auto (bar on a terminal, else line), bar, line (one per picture), plain (one per step), "
                  "json, none [auto]")
      ->type_name("FORM")
      ->group("Output");
  sub->add_flag("-q,--quiet", command->quiet, "print file names only")->group("Output");
  sub->add_flag("--plan", command->plan_only, "print the memory plan and stop")->group("Output");
  sub->add_flag("--profile", command->profile, "print time, GFLOP/s and GB/s per operation")->group("Output");
  add_text(sub, "--trace", command->trace, "write a Chrome trace (JSON) of every operation")
      ->type_name("FILE")
      ->group("Output");
  add_seconds(sub, "--tune", command->tune,
              "look so long after each picture for faster kernels for its shapes: 5, 5s, 2m")
      ->option_text("TIME")
      ->group("Advanced");
  add_number(sub, "--threads", command->threads, "CPU threads [all cores]", 1, 1024)
      ->option_text("N")
      ->group("Advanced");
  add_text(sub, "--config", command->config,
           "TOML file with options as name = value lines [" + default_config_path() + "]")
      ->type_name("FILE")
      ->group("Advanced");
  for (CLI::Option* option : sub->get_options())
    if (option->get_multi_option_policy() != CLI::MultiOptionPolicy::TakeAll)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  sub->callback([command] {
    if (command->threads > 0) omp_set_num_threads(command->threads);
    Run run(*command);
    run();
  });
}

}  // namespace rocm_sd::cli
