// rocm-sd generate: prompts to picture files.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <sstream>

#include "apps/cli/background_tuning.hpp"
#include "apps/cli/commands.hpp"
#include "apps/cli/exact_comparison.hpp"
#include "apps/cli/generate_command.hpp"
#include "apps/cli/generate_report.hpp"
#include "apps/cli/interrupt.hpp"
#include "apps/cli/journal.hpp"
#include "apps/cli/option_notes.hpp"
#include "apps/cli/picture_writer.hpp"
#include "apps/cli/progress.hpp"
#include "apps/cli/terminal_preview.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/utf8.hpp"
#include "pipeline/latents_file.hpp"
#include "pipeline/output_name.hpp"
#include "pipeline/sheet.hpp"
#include "rocm_sd/multi.hpp"
#include "scaling/launcher.hpp"

namespace rocm_sd::cli {
namespace {

// A file of options: more bytes than that are a mistake.
constexpr uint64_t kMaxConfigBytes = 1 << 20;

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

// The file's options; those of the command line come after and win. Without a name the user's own file is
// read if it is there.
void read_config(const std::string& asked, OptionTargets& targets, std::vector<OptionValue>& options) {
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
      options.emplace_back(name, item.inputs.front());
    }
  } catch (const Error& e) {
    throw UsageError(concat(printable(path), ": ", e.what()));
  }
}

class Run {
 public:
  Run(const GenerateCommand& command, const std::vector<Job>& jobs)
      : command_(command),
        printer_(parse_progress_style(command.progress)),
        more_jobs_(jobs),
        quiet_(command.quiet) {}

  std::vector<std::string> operator()() {
    LoadOptions load;
    read_options(load);
    if (!command_.preview_terminal.empty()) terminal_.emplace(command_.preview_terminal);
    require<UsageError>(!load.model.empty(), "model: expected --model PATH");
    require<UsageError>(request_.prompts.empty() || command_.prompts_file.empty(),
                        "image-prompt, prompts-file: expected one of them");
    make_jobs();
    if (!command_.grid.empty()) columns_ = grid_columns(command_.grid);
    require<UsageError>(!journal_ || columns_ == 0,
                        "journal: a sheet (--grid) is written at the end, as a whole");
    // A bad pattern, and files that cannot be written, fail now.
    const OutputName first{.index = 1, .count = columns_ > 0 ? 1 : jobs_->pictures(), .seed = 0, .model = ""};
    if (!command_.plan_only) require_writable(output_name(command_.output, first));
    if (!command_.trace.empty()) require_writable(command_.trace);

    catch_interrupts();
    callbacks_.progress = [this](const Progress& p) {
      print_written();
      if (!quiet_) printer_(p);
      return true;
    };
    callbacks_.cancelled = interrupted;
    callbacks_.planned = [this](const MemoryPlan& plan) { show_plan(plan); };
    callbacks_.preview = [this](const Preview& preview) { save_preview(preview); };
    try {
      if (!load.devices.empty()) refuse_with_devices();
      if (asks_for_ranks(load.devices)) {
        require<UsageError>(command_.trace.empty(),
                            "trace: not with --devices ranks, of which every process knows its own rank "
                            "alone; expected --devices with names");
        follow_rank_0(load);
      }
      require<UsageError>(command_.tune <= 0 || load.place.empty(),
                          "tune: with --device alone, not with --place; tune each device by --device first");
      if (command_.tune > 0) tuning_.emplace(load.device, command_.tune, callbacks_.cancelled);
      MultiPipeline pipeline = MultiPipeline::load(load, callbacks_);
      drawers_ = pipeline.drawers().size();
      if (command_.profile || !command_.trace.empty()) pipeline.enable_profiling();
      proposed_ = pipeline.default_request();
      receipts_.emplace(pipeline.info());
      if (!quiet_) print_model(pipeline);
      if (!quiet_) warn_of_options(pipeline.info());
      generate_all(pipeline);
      finish(pipeline);
    } catch (...) {
      printer_.finish();
      finish_writing();
      throw;
    }
    return std::move(paths_);
  }

 private:
  // Of the configuration file and the command line. A folder of --init-image stands for its pictures.
  void read_options(LoadOptions& load) {
    OptionTargets targets{&load, &request_};
    read_config(command_.config, targets, options_);
    for (const auto& [row, value] : command_.set) {
      given_.insert(row->name);
      if (row->name == std::string_view("init-image") && is_folder_path(value)) {
        folder_ = value;
        const Job first = jobs_of_folder(value).front();  // for messages about options that go with a picture
        set_option(targets, row->name, first.set.front().second);
        continue;
      }
      set_option(targets, row->name, value);
      options_.emplace_back(row->name, value);
    }
    if (!command_.preview_terminal.empty() && request_.preview.mode == "none") {
      set_option(targets, "preview", "proj");
      options_.emplace_back("preview", "proj");
    }
  }

  void make_jobs() {
    std::vector<Job> jobs = more_jobs_;
    if (!folder_.empty()) jobs = jobs_of_both(jobs_of_folder(folder_), jobs);
    if (!command_.prompts_file.empty()) jobs = jobs_of_both(read_jobs(command_.prompts_file), jobs);
    jobs_.emplace(options_, std::move(jobs), command_.repeat);
    const bool in_grid = !more_jobs_.empty();  // whose cells differ by their options alone
    const bool dynamic = command_.dynamic_prompts || !command_.wildcard_dir.empty();
    require<FileError>(command_.wildcard_dir.empty() || is_folder_path(command_.wildcard_dir),
                       "wildcard-dir: ", printable(command_.wildcard_dir), ": no such folder");
    if (!command_.journal.empty() && !command_.plan_only) journal_.emplace(command_.journal);
    const uint64_t seed = journal_ ? journal_->seed() : std::random_device()();
    jobs_->resolve(dynamic ? &wildcards_.emplace(command_.wildcard_dir) : nullptr,
                   dynamic || journal_ || in_grid || command_.compare_exact ? &seed : nullptr,
                   in_grid ? Jobs::Seeds::kTheSame : Jobs::Seeds::kEachItsOwn);
    if (dynamic) jobs_->hash();  // a prompt that cannot be read fails now
    if (journal_) journal_->begin(concat(jobs_->hash(), " ", command_.output));
    paths_.resize(static_cast<size_t>(jobs_->pictures()));
    for (size_t i = 0; i < jobs_->batches().size(); ++i) {
      const std::vector<std::string>* files = journal_ ? journal_->files(i) : nullptr;
      if (files == nullptr || files->size() != static_cast<size_t>(jobs_->batches()[i].count))
        pending_.push_back(i);
      else
        std::ranges::copy(*files, paths_.begin() + (jobs_->batches()[i].first - 1));
    }
    if (const size_t there = jobs_->batches().size() - pending_.size(); there > 0 && !quiet_)
      fmt::print(stderr, "journal: {} of {} batches are there\n", there, jobs_->batches().size());
  }

  void warn_of_options(const ModelInfo& model) const {
    std::vector<std::string> lines = options_without_effect(given_, request_, model);
    if (command_.grid_labels && columns_ == 0)
      lines.emplace_back("--grid-labels has no effect: there is no --grid");
    if (!command_.prompts_file.empty() && !command_.prompts_file.ends_with(".jsonl") &&
        given_.contains("prompt"))
      lines.emplace_back("--prompt has no effect: --prompts-file stands in its place");
    for (const std::string& line : lines) fmt::print(stderr, "warning: {}\n", line);
  }

  void refuse_with_devices() const {
    for (const auto& [name, given] : {std::pair{"tune", command_.tune > 0}, {"profile", command_.profile}})
      require<UsageError>(!given, name, ": with --device, not with --devices");
  }

  // Of ranks that draw one image together one speaks and writes.
  void follow_rank_0(const LoadOptions& load) {
    const std::optional<Launch> launch = find_launch([](const char* name) { return std::getenv(name); });
    require<UsageError>(load.split != "images" || columns_ == 0,
                        "grid: one process writes it, and with --devices ranks each writes its own images; "
                        "expected --devices cuda:0,cuda:1 or --split rows");
    // Each process would draw seeds of its own, and write the same file.
    require<UsageError>(!wildcards_ && !journal_,
                        "wildcard-dir, dynamic-prompts, journal: not with --devices ranks; expected "
                        "--devices cuda:0,cuda:1");
    if (launch && launch->rank > 0 && load.split != "images") quiet_ = true;
  }

  void generate_all(MultiPipeline& pipeline) {
    const size_t draws = command_.compare_exact ? 2 : 1;  // of each batch
    const auto request_at = [&](size_t index) -> std::optional<GenerateRequest> {
      if (index >= draws * pending_.size()) return std::nullopt;
      GenerateRequest request = jobs_->request(jobs_->batches()[pending_[index / draws]], proposed_);
      if (draws == 1) return request;
      GenerateRequest exact = ExactComparison::exact(request);  // refuses what has no savings
      return index % draws == 0 ? exact : request;
    };
    if (command_.plan_only) {
      for (const DevicePlan& one : pipeline.plans(jobs_->request(jobs_->batches().front(), proposed_))) {
        planned_ = false;
        show_plan(one.plan, drawers_ > 1 ? one.devices : "");
      }
      return;
    }
    const auto take = [&](size_t index, GenerateResult result) {
      printer_.finish();
      if (terminal_) terminal_->restart();
      if (!quiet_) print_times(result);
      if (draws > 1 && comparison_.take(result)) return;
      keep(pending_[index / draws], std::move(result), pipeline.info().name);
      print_written();
      if (tuning_) tuning_->spend();
    };
    pipeline.generate_each(request_at, take, callbacks_);
  }

  // The first one: those of further images are the same, as a rule.
  void show_plan(const MemoryPlan& plan, const std::string& device = "") {
    if (!quiet_ && !planned_) print_plan(plan, device);
    planned_ = true;
  }

  void print_written() {
    for (const std::string& path : writer_.written()) {
      if (!command_.print_paths) continue;
      printer_.finish();
      if (terminal_) terminal_->restart();
      fmt::print("{}\n", path);
      std::fflush(stdout);
    }
  }

  // What is drawn is written, whatever ended the run.
  void finish_writing() {
    try {
      writer_.finish();
    } catch (const std::exception& e) {
      fmt::print(stderr, "error: {}\n", e.what());
    }
    print_written();
  }

  void keep(size_t number, GenerateResult result, const std::string& model) {
    const Batch& batch = jobs_->batches()[number];
    if (columns_ > 0) {
      for (Picture& picture : result.pictures) {
        const std::string& label = jobs_->job(batch).label;
        labels_.push_back(label.empty() ? request_.prompt : label);
        cells_.push_back(std::move(picture.image));
        if (first_parameters_.empty()) first_parameters_ = picture.parameters;
      }
      return;
    }
    const auto shared = std::make_shared<const GenerateResult>(std::move(result));
    writer_.add([this, number, shared, model] { return write_batch(number, *shared, model); });
  }

  // On the writer's thread -> the paths.
  std::vector<std::string> write_batch(size_t number, const GenerateResult& result,
                                       const std::string& model) {
    const Batch& batch = jobs_->batches()[number];
    std::vector<std::string> out;
    for (size_t i = 0; i < result.pictures.size(); ++i) {
      const Picture& picture = result.pictures[i];
      const OutputName name{.index = batch.first + static_cast<int>(i),
                            .count = jobs_->pictures(),
                            .seed = picture.seed,
                            .model = model,
                            .input = jobs_->job(batch).input};
      out.push_back(output_name(command_.output, name));
      save_image(picture.image, out.back(), texts_of(batch, result, i));
      paths_[static_cast<size_t>(name.index - 1)] = out.back();
      if (!picture.latents.empty()) write_latents(picture, out.back());
    }
    if (journal_) journal_->note(number, out);
    return out;
  }

  ImageWriteOptions texts_of(const Batch& batch, const GenerateResult& result, size_t picture) {
    ImageWriteOptions out{.quality = command_.quality, .parameters = "", .receipt = ""};
    if (command_.no_metadata) return out;
    out.parameters = result.pictures[picture].parameters;
    if (command_.no_receipt) return out;
    out.receipt = receipt_text(
        receipts_->of(jobs_->options(batch, proposed_), result, static_cast<int>(picture), command_.quality));
    return out;
  }

  static void write_latents(const Picture& picture, const std::string& path) {
    const double pixels = static_cast<double>(picture.image.width) * picture.image.height;
    const auto scale = std::llround(std::sqrt(4 * pixels / static_cast<double>(picture.latents.size())));
    save_latents(std::filesystem::path(path).replace_extension(".safetensors").string(),
                 {1, picture.image.height / scale, picture.image.width / scale, picture.latents});
  }

  // The first image's under the name as given, the others' with their number.
  void save_preview(const Preview& preview) {
    if (terminal_) terminal_->draw(preview.picture, preview.image, printer_.lines());
    if (terminal_ && command_.preview_path.empty()) return;
    std::filesystem::path path = command_.preview_path.empty() ? "preview.png" : command_.preview_path;
    if (preview.image > 0)
      path.replace_filename(concat(path.stem().string(), "-", preview.image + 1, path.extension().string()));
    save_image(preview.picture, path.string(), {});
  }

  void finish(MultiPipeline& pipeline) {
    if (!cells_.empty()) {
      writer_.add([&] {
        const Image sheet =
            make_sheet(cells_, command_.grid_labels ? labels_ : std::vector<std::string>{}, columns_);
        const std::string path = output_name(command_.output, {1, 1, 0, pipeline.info().name});
        const bool texts = cells_.size() == 1 && !command_.no_metadata;
        save_image(sheet, path, {.quality = command_.quality, .parameters = texts ? first_parameters_ : ""});
        return std::vector{path};
      });
    }
    writer_.finish();
    print_written();
    if (command_.profile) fmt::print(stderr, "{}", pipeline.profile_table());
    if (!command_.trace.empty()) pipeline.write_profile_trace(command_.trace);
  }

  const GenerateCommand& command_;
  GenerateRequest request_, proposed_;  // of the options alone; the model's
  ProgressPrinter printer_;
  std::optional<TerminalPreview> terminal_;
  Callbacks callbacks_;
  std::optional<BackgroundTuning> tuning_;
  std::vector<OptionValue> options_;
  std::set<std::string> given_;  // options of the command line, not of the configuration file
  std::string folder_;           // of init images
  const std::vector<Job>& more_jobs_;
  std::optional<Wildcards> wildcards_;
  std::optional<Jobs> jobs_;
  std::optional<Journal> journal_;
  std::vector<size_t> pending_;     // batches that are to be drawn
  std::vector<std::string> paths_;  // of all pictures
  std::optional<Receipts> receipts_;
  int columns_ = 0;
  size_t drawers_ = 1;
  bool planned_ = false, quiet_;
  std::vector<Image> cells_;
  std::vector<std::string> labels_;
  std::string first_parameters_;
  ExactComparison comparison_;
  PictureWriter writer_;  // last: what it writes uses the others
};

}  // namespace

std::vector<std::string> run_generate(const GenerateCommand& command, const std::vector<Job>& jobs) {
  if (command.threads > 0) omp_set_num_threads(command.threads);
  Run run(command, jobs);
  return run();
}

void add_generate(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App* sub = app.add_subcommand("generate", "make pictures from prompts");
  add_generate_options(sub, command.get());
  add_text(sub, "-o,--output", command->output,
           "file name pattern with {index}, {seed}, {model}, {input}; ends in .png, .jpg or .webp")
      ->option_text("PATTERN [" + command->output + "]")
      ->group("Output");
  add_text(sub, "--grid", command->grid, "one sheet of all pictures")
      ->type_name("COLUMNSxROWS")
      ->group("Output");
  sub->add_flag("--grid-labels", command->grid_labels, "write each prompt below its picture")
      ->group("Output");
  take_last(sub);
  sub->callback([command] { run_generate(*command); });
}

}  // namespace rocm_sd::cli
