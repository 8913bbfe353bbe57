// rocm-sd reproduce: draws a picture again from the receipt in its file, and says what is another one now.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "apps/cli/commands.hpp"
#include "apps/cli/generate_report.hpp"
#include "apps/cli/interrupt.hpp"
#include "apps/cli/progress.hpp"
#include "apps/cli/receipts.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/format.hpp"
#include "rocm_sd/multi.hpp"

namespace rocm_sd::cli {
namespace {

namespace fs = std::filesystem;

struct ReproduceCommand {
  std::string file, output, device;
  std::vector<std::string> model_dirs;
  bool quiet = false;
};

constexpr size_t kMaxLooked = 1'000'000;  // files in the folders to look through

uint64_t folder_bytes(const fs::path& folder) {
  std::error_code error;
  uint64_t total = 0;
  for (fs::recursive_directory_iterator it(folder, fs::directory_options::follow_directory_symlink, error),
       end;
       !error && it != end; it.increment(error))
    if (std::error_code ignored; it->is_regular_file(ignored)) total += it->file_size(ignored);
  return total;
}

// Finds the files of a receipt: where they were, or by size and hash below folders.
class Finder {
 public:
  explicit Finder(const std::vector<std::string>& folders) {
    std::error_code error;
    const auto how =
        fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
    for (const std::string& folder : folders) {
      require<FileError>(is_folder_path(folder), "model-dir: ", printable(folder), ": no such folder");
      for (fs::recursive_directory_iterator it(folder, how, error), end; !error && it != end;
           it.increment(error)) {
        if (it.depth() > 16) it.disable_recursion_pending();
        std::error_code ignored;
        if (it->is_regular_file(ignored))
          by_size_.emplace(it->file_size(ignored), it->path());
        else if (path_exists(it->path() / "model_index.json") || path_exists(it->path() / "config.json"))
          models_.push_back(it->path());
        require<UsageError>(by_size_.size() <= kMaxLooked, "model-dir: more than ", kMaxLooked, " files");
      }
      if (path_exists(fs::path(folder) / "model_index.json")) models_.emplace_back(folder);
    }
  }

  // Throws FileError where there is no such file; a file that was changed is `changed`.
  std::string find(const ReceiptFile& file) {
    if (path_exists(file.path) && identify_file(file.option, file.path).sha256 == file.sha256)
      return file.path;
    const auto same = [&](const fs::path& path) {
      if (is_folder_path(path) && folder_bytes(path) != file.bytes) return false;
      const ReceiptFile found = identify_file(file.option, path.string());
      return found.bytes == file.bytes && found.sha256 == file.sha256;
    };
    const auto [begin, end] = by_size_.equal_range(file.bytes);
    for (auto it = begin; it != end; ++it)
      if (same(it->second)) return it->second.string();
    for (const fs::path& folder : models_)
      if (folder.filename() == file.name && same(folder)) return folder.string();
    for (const fs::path& folder : models_)
      if (same(folder)) return folder.string();
    throw FileError(concat(file.option, ": ", printable(file.path),
                           path_exists(file.path) ? " is another file now" : " is not there",
                           "; no file with SHA-256 ", file.sha256.substr(0, 16), "... below --model-dir"));
  }

 private:
  std::multimap<uint64_t, fs::path> by_size_;
  std::vector<fs::path> models_;  // folders
};

// A folder of links, under the names that prompts use.
class LinkFolder {
 public:
  LinkFolder() {
    std::string pattern = (fs::temp_directory_path() / "rocm-sd-XXXXXX").string();
    require<FileError>(mkdtemp(pattern.data()) != nullptr, printable(pattern), ": cannot make a folder");
    path_ = pattern;
  }
  ~LinkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  LinkFolder(const LinkFolder&) = delete;
  LinkFolder& operator=(const LinkFolder&) = delete;
  void add(const std::string& name, const std::string& file) const {
    std::error_code error;
    if (fs::is_symlink(path_ / name, error)) return;
    fs::create_symlink(fs::absolute(file), path_ / name, error);
    require<FileError>(!error, printable_path(path_ / name), ": ", error.message());
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

class Reproduction {
 public:
  explicit Reproduction(const ReproduceCommand& command)
      : command_(command), then_(read()), finder_(command.model_dirs) {}

  void operator()() {
    std::vector<OptionValue> options = located_options();
    if (!command_.device.empty()) {
      std::erase_if(options,
                    [](const OptionValue& o) { return o.first == "device" || o.first == "devices"; });
      options.emplace_back("device", command_.device);
    }
    LoadOptions load;
    GenerateRequest request;
    OptionTargets targets{&load, &request};
    for (const auto& [name, value] : options) set_option(targets, name, value);
    if (!request.prompts.empty() && request.batch == 1)
      request.batch = static_cast<int>(request.prompts.size());
    require<FormatError>(then_.picture < request.batch, printable(command_.file), ": the receipt's picture ",
                         then_.picture, " is none of a batch of ", request.batch);
    catch_interrupts();
    ProgressPrinter printer(parse_progress_style(command_.quiet ? "none" : "auto"));
    Callbacks callbacks;
    callbacks.cancelled = interrupted;
    callbacks.progress = [&](const Progress& p) { return printer(p), true; };
    MultiPipeline pipeline = MultiPipeline::load(load, callbacks);
    const GenerateResult result = pipeline.generate(request, callbacks);
    printer.finish();
    Receipts receipts(pipeline.info());
    Receipt now = receipts.of(options, result, then_.picture, then_.quality);
    now.options = located_;  // links to files are gone when the program ends
    now.files = files_;
    const Picture& picture = result.pictures.at(static_cast<size_t>(then_.picture));
    report(picture, now);
    if (!command_.output.empty())
      save_image(picture.image, command_.output,
                 {.quality = then_.quality, .parameters = picture.parameters, .receipt = receipt_text(now)});
  }

 private:
  Receipt read() const {
    const std::string text = read_receipt(command_.file);
    require<FormatError>(!text.empty(), printable(command_.file),
                         ": carries no receipt (only files of rocm-sd generate do, without --no-receipt)");
    return parse_receipt(text, printable(command_.file));
  }

  // The receipt's options with the places where their files are now.
  std::vector<OptionValue> located_options() {
    std::vector<OptionValue> options = then_.options;
    for (const ReceiptFile& file : then_.files) {
      const std::string path = finder_.find(file);
      files_.push_back(file);
      files_.back().path = path;
      if (path == file.path) continue;
      for (auto& [name, value] : options)
        if (const size_t at = value.find(file.path); name == file.option && at != value.npos)
          value.replace(at, file.path.size(), path);
    }
    located_ = options;
    for (const bool by_option : {false, true})  // where two have one name, prompts mean the one of no option
      for (const ReceiptFile& file : files_)
        if ((file.option == "lora" || file.option == "embedding") && named_by_option(file) == by_option)
          link(file);
    for (const auto& [kind, folder] : links_) options.emplace_back(kind + "-dir", folder->path());
    return options;
  }

  bool named_by_option(const ReceiptFile& file) const {
    return std::ranges::any_of(located_, [&](const OptionValue& o) {
      return o.first == file.option && o.second.find(file.path) != std::string::npos;
    });
  }
  // Files that prompts name are found by their names: all of a kind in one folder.
  void link(const ReceiptFile& file) {
    std::unique_ptr<LinkFolder>& folder = links_[file.option];
    if (!folder) folder = std::make_unique<LinkFolder>();
    folder->add(file.name, file.path);
  }

  void report(const Picture& picture, const Receipt& now) const {
    const Image before = load_image(command_.file);
    const ImageFormat format = format_of_file();
    const Image after =
        format == ImageFormat::kPng
            ? picture.image
            : decode_image(encode_image(picture.image, format, {.quality = std::max(then_.quality, 1)}),
                           "the picture");
    const bool same_size = before.width == after.width && before.height == after.height;
    require<GenerationError>(same_size, printable(command_.file), ": is ", before.width, " x ", before.height,
                             ", drawn again ", after.width, " x ", after.height,
                             ": the file was changed after it was drawn");
    double squares = 0;
    int largest = 0;
    for (size_t i = 0; i < before.rgb.size(); ++i) {
      const int difference = std::abs(before.rgb[i] - after.rgb[i]);
      squares += difference * difference;
      largest = std::max(largest, difference);
    }
    const double mean = squares / static_cast<double>(before.rgb.size());
    fmt::print("{}: {}\n", printable(command_.file),
               largest == 0 ? "the same picture, every byte of it"
                            : fmt::format("PSNR {:.2f} dB, values differ by at most {} of 255",
                                          10 * std::log10(255.0 * 255.0 / mean), largest));
    const std::vector<std::string> differences = receipt_differences(then_, now);
    for (const std::string& line : differences) fmt::print("differs: {}\n", line);
    if (differences.empty())
      fmt::print(
          "nothing differs: version, device, driver, precision, kernels and their choices are those of the "
          "receipt\n");
  }

  ImageFormat format_of_file() const {
    const std::string head = read_file(command_.file, uint64_t{50'000'000}).substr(0, 4);
    return head.starts_with("\x89PNG") ? ImageFormat::kPng
           : head.starts_with("RIFF")  ? ImageFormat::kWebp
                                       : ImageFormat::kJpeg;
  }

  const ReproduceCommand& command_;
  Receipt then_;
  std::vector<OptionValue> located_;
  std::vector<ReceiptFile> files_;  // where they are now
  Finder finder_;
  std::map<std::string, std::unique_ptr<LinkFolder>> links_;  // by kind
};

}  // namespace

void add_reproduce(CLI::App& app) {
  auto command = std::make_shared<ReproduceCommand>();
  CLI::App* sub = app.add_subcommand("reproduce", "draw a picture again from its file, and compare");
  sub->add_option("FILE", command->file, "PNG, JPEG or WebP that rocm-sd generate wrote")
      ->required()
      ->type_name("");
  sub->add_option(
         "--model-dir", command->model_dirs,
         "where models, LoRAs and pictures are found by their hashes, folders below it too; may be given "
         "several times [where they were]")
      ->type_name("FOLDER")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_text(sub, "--device", command->device, "as generate's [the one that drew it]")->type_name("NAME");
  add_text(sub, "-o,--output", command->output, "write the picture that was drawn again")->type_name("FILE");
  sub->add_flag("-q,--quiet", command->quiet, "no progress");
  sub->callback([command] {
    Reproduction reproduction(*command);
    reproduction();
  });
}

}  // namespace rocm_sd::cli
