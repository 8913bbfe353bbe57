#include "apps/cli/jobs.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/utf8.hpp"
#include "pipeline/options.hpp"
#include "text/prompt.hpp"
#include "weights/file_hash.hpp"

namespace rocm_sd::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxPromptsBytes = 64 << 20;
constexpr size_t kMaxJobs = 10000;
constexpr int64_t kMaxPictures = 10'000'000;

// Lines of a text file, with their numbers; empty ones and comments are left out.
std::vector<std::pair<int, std::string>> read_lines(const std::string& path) {
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
  std::vector<std::pair<int, std::string>> out;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    require<UsageError>(out.size() < kMaxJobs, printable(path), ": at most ", kMaxJobs, " prompts");
    out.emplace_back(number, std::move(line));
  }
  require<FormatError>(!out.empty(), printable(path), ": no prompts; expected one a line");
  return out;
}

Job job_of_prompt(const std::string& path, int number, const std::string& line) {
  const auto characters =
      std::count_if(line.begin(), line.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; });
  require<UsageError>(characters <= static_cast<ptrdiff_t>(kMaxPromptChars), printable(path), ": line ",
                      number, " has ", characters, " characters; a prompt has at most ", kMaxPromptChars);
  return {.set = {{"prompt", line}}, .label = line, .input = ""};
}

// {"prompt": "a cat", "steps": 20, "lora": ["a.safetensors", "b.safetensors:0.5"]}
Job job_of_object(const std::string& path, int number, const std::string& line) {
  const std::string what = concat(printable(path), ": line ", number);
  const nlohmann::json root = parse_json(line, {.max_bytes = 1 << 20, .max_depth = 3}, what);
  require<FormatError>(root.is_object(), what, ": expected a JSON object of options");
  Job out;
  for (const auto& [key, value] : root.items()) {
    std::string name = key;
    std::ranges::replace(name, '_', '-');
    const auto add = [&](const nlohmann::json& one) {
      require<FormatError>(one.is_string() || one.is_number() || one.is_boolean(), what, ": ", printable(key),
                           ": expected a text, a number, true or false");
      if (one.is_boolean() && !one.get<bool>()) return;  // a flag that is not set
      out.set.emplace_back(name, one.is_string() ? one.get<std::string>() : one.dump());
    };
    if (value.is_array())
      std::ranges::for_each(value, add);
    else
      add(value);
    if (name == "prompt" && value.is_string()) out.label = value.get<std::string>();
  }
  return out;
}

// SplitMix64's output function.
uint64_t mixed(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<Job> read_jobs(const std::string& path) {
  std::vector<Job> out;
  const bool objects = path.ends_with(".jsonl");
  for (const auto& [number, line] : read_lines(path))
    out.push_back(objects ? job_of_object(path, number, line) : job_of_prompt(path, number, line));
  return out;
}

std::vector<Job> jobs_of_folder(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::string ending = it->path().extension().string();
    std::ranges::transform(ending, ending.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    if (ending == ".png" || ending == ".jpg" || ending == ".jpeg" || ending == ".webp")
      files.push_back(it->path());
  }
  require<FileError>(!error, "init-image: ", printable(folder), ": ", error.message());
  require<FileError>(!files.empty(), "init-image: ", printable(folder), ": no pictures (.png, .jpg, .webp)");
  require<UsageError>(files.size() <= kMaxJobs, "init-image: ", printable(folder), ": ", files.size(),
                      " pictures, at most ", kMaxJobs);
  std::ranges::sort(files);
  std::vector<Job> out;
  for (const fs::path& file : files)
    out.push_back({.set = {{"init-image", file.string()}}, .label = "", .input = file.stem().string()});
  return out;
}

std::vector<Job> jobs_of_both(const std::vector<Job>& outer, const std::vector<Job>& inner) {
  if (outer.empty()) return inner;
  if (inner.empty()) return outer;
  require<UsageError>(outer.size() <= kMaxJobs / inner.size(), "at most ", kMaxJobs,
                      " combinations of options, not ", outer.size(), " x ", inner.size());
  std::vector<Job> out;
  for (const Job& a : outer)
    for (const Job& b : inner) {
      Job job = a;
      job.set.insert(job.set.end(), b.set.begin(), b.set.end());
      if (job.label.empty()) job.label = b.label;
      if (job.input.empty()) job.input = b.input;
      out.push_back(std::move(job));
    }
  return out;
}

Jobs::Jobs(std::vector<OptionValue> options, std::vector<Job> jobs, int rounds)
    : options_(std::move(options)), jobs_(std::move(jobs)) {
  if (jobs_.empty()) jobs_.emplace_back();
  int64_t total = 0;
  for (size_t j = 0; j < jobs_.size(); ++j) {
    const GenerateRequest request = counted(jobs_[j]);
    const int64_t last_round = int64_t{rounds - 1} * request.batch;
    require<UsageError>(request.seed <= std::numeric_limits<int64_t>::max() - last_round,
                        "seed: ", request.seed, " leaves no seeds for ", rounds, " rounds");
    total += int64_t{rounds} * request.batch;
    require<UsageError>(total <= kMaxPictures, "at most ", kMaxPictures, " pictures a run, not ",
                        static_cast<int64_t>(jobs_.size()) * rounds * request.batch);
    for (int round = 0; round < rounds; ++round) {
      const int64_t seed = request.seed < 0 ? -1 : request.seed + int64_t{round} * request.batch;
      batches_.push_back({j, pictures_ + 1, request.batch, seed});
      pictures_ += request.batch;
    }
  }
}

void Jobs::resolve(Wildcards* wildcards, const uint64_t* seed, Seeds seeds) {
  wildcards_ = wildcards;
  for (size_t i = 0; i < batches_.size() && seed; ++i)
    if (batches_[i].seed < 0)
      batches_[i].seed =
          static_cast<int64_t>(mixed(seeds == Seeds::kTheSame ? *seed : *seed + i) & 0xffffffffu);
}

namespace {

// One option; those of loading have done their work, and no job may have any.
void set_one(GenerateRequest& request, const OptionValue& option, bool of_job) {
  LoadOptions ignored;
  OptionTargets targets{of_job ? nullptr : &ignored, &request};
  set_option(targets, option.first, option.second);
}

void finish_batch(GenerateRequest& request) {
  if (!request.prompts.empty() && request.batch == 1)
    request.batch = static_cast<int>(std::min<size_t>(request.prompts.size(), 64));
}

}  // namespace

// Without the picture of a folder's job, which is opened when its turn comes.
GenerateRequest Jobs::counted(const Job& job) const {
  GenerateRequest request;
  for (const OptionValue& option : options_) set_one(request, option, false);
  for (const OptionValue& option : job.set)
    if (option.first != "init-image") set_one(request, option, true);
  finish_batch(request);
  return request;
}

// Prompts with choices become those of the batch's seeds: each of its pictures has its own.
void Jobs::expand_choices(const Batch& batch, std::vector<OptionValue>& options) const {
  const auto seed = static_cast<uint64_t>(batch.seed);
  std::string prompt;
  for (const char* name : {"prompt", "negative-prompt"}) {
    std::string text;
    for (const auto& [key, value] : options)
      if (key == name) text = value;
    if (!has_choices(text)) continue;
    if (name == std::string_view("prompt")) prompt = text;
    options.emplace_back(name, wildcards_->expand(text, seed));
  }
  const bool own =
      std::ranges::any_of(options, [](const OptionValue& o) { return o.first == "image-prompt"; });
  if (prompt.empty() || batch.count == 1 || own) return;
  for (int i = 0; i < batch.count; ++i)
    options.emplace_back("image-prompt", wildcards_->expand(prompt, seed + static_cast<uint64_t>(i)));
}

std::vector<OptionValue> Jobs::options(const Batch& batch, const GenerateRequest& proposed) const {
  std::vector<OptionValue> out = options_;
  const std::vector<OptionValue>& own = jobs_[batch.job].set;
  out.insert(out.end(), own.begin(), own.end());
  if (batch.seed >= 0) out.emplace_back("seed", std::to_string(batch.seed));
  if (wildcards_) expand_choices(batch, out);
  const auto chosen = [&, end = out.size()](std::string_view name) {
    return std::any_of(out.begin(), out.begin() + static_cast<ptrdiff_t>(end),
                       [&](const OptionValue& o) { return o.first == name; });
  };
  const bool sampling = chosen("sampler") || chosen("schedule") || chosen("sigmas");
  if (!chosen("steps")) out.emplace_back("steps", std::to_string(proposed.steps));
  if (!chosen("cfg-scale")) out.emplace_back("cfg-scale", concat(proposed.cfg_scale));
  if (!sampling) {
    out.emplace_back("sampler", proposed.sampler);
    out.emplace_back("schedule", proposed.schedule);
  }
  return out;
}

GenerateRequest Jobs::request(const Batch& batch, const GenerateRequest& proposed) const {
  GenerateRequest out;
  for (const OptionValue& option : options(batch, proposed)) set_one(out, option, false);
  finish_batch(out);
  return out;
}

std::string Jobs::hash() const {
  nlohmann::json all = nlohmann::json::array();
  const GenerateRequest none;
  for (const Batch& batch : batches_) {
    nlohmann::json one = nlohmann::json::array();
    for (const auto& [name, value] : options(batch, none)) one.push_back({name, value});
    all.push_back(std::move(one));
  }
  return sha256_of_text(all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace rocm_sd::cli
