#include "apps/cli/journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/error.hpp"
#include "base/file.hpp"

namespace rocm_sd::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
constexpr const char* kHead = "rocm_sd_journal";
constexpr int kVersion = 1;

std::string reason() { return std::strerror(errno); }

}  // namespace

Journal::Journal(const std::string& path) : path_(path) {
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  require<FileError>(descriptor_ >= 0, "journal: ", printable(path), ": ", reason());
  require<UsageError>(flock(descriptor_, LOCK_EX | LOCK_NB) == 0, "journal: ", printable(path),
                      ": another run writes to it");
  read(read_file(path, kMaxBytes));
  if (hash_.empty()) seed_ = std::random_device()();
}

Journal::~Journal() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Journal::read(const std::string& text) {
  // Behind the last newline stands what was not written to its end.
  const size_t end = text.rfind('\n') + 1;
  std::istringstream in(text.substr(0, end));
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    const std::string what = concat("journal: ", printable(path_), ": line ", ++number);
    if (number == 1) {
      const bool ok = json.is_object() && json.value(kHead, 0) == kVersion && json.contains("run") &&
                      json["run"].is_string() && json.contains("seed") && json["seed"].is_number_unsigned();
      require<FormatError>(ok, what, ": this is no journal of rocm-sd generate");
      hash_ = json["run"].get<std::string>();
      seed_ = json["seed"].get<uint64_t>();
      continue;
    }
    const bool ok = json.is_object() && json.contains("batch") && json["batch"].is_number_unsigned() &&
                    json.contains("files") && json["files"].is_array();
    require<FormatError>(ok, what, ": expected a batch and its files");
    std::vector<std::string> files;
    for (const Json& file : json["files"]) {
      require<FormatError>(file.is_string(), what, ": expected names of files");
      files.push_back(file.get<std::string>());
    }
    done_[json["batch"].get<size_t>()] = std::move(files);
  }
  require<FormatError>(text.empty() || number > 0 || text.starts_with("{\"rocm_sd_journal\""),
                       "journal: ", printable(path_), ": this is no journal of rocm-sd generate");
  if (end < text.size()) {
    std::error_code error;
    std::filesystem::resize_file(path_, end, error);
    require<FileError>(!error, "journal: ", printable(path_), ": ", error.message());
  }
}

void Journal::begin(const std::string& hash) {
  require<UsageError>(
      hash_.empty() || hash_ == hash, "journal: ", printable(path_),
      ": it belongs to a run of other options, prompts or files; name another file, or delete it");
  if (!hash_.empty()) return;
  hash_ = hash;
  append(Json{{kHead, kVersion}, {"run", hash}, {"seed", seed_}}.dump());
}

const std::vector<std::string>* Journal::files(size_t batch) const {
  const auto found = done_.find(batch);
  if (found == done_.end()) return nullptr;
  for (const std::string& file : found->second)
    if (!path_exists(file)) return nullptr;
  return &found->second;
}

void Journal::note(size_t batch, const std::vector<std::string>& files) {
  append(Json{{"batch", batch}, {"files", files}}.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void Journal::append(const std::string& line) {
  const std::string text = line + '\n';
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = write(descriptor_, text.data() + at, text.size() - at);
    require<FileError>(count > 0 || errno == EINTR, "journal: ", printable(path_), ": ", reason());
    at += count > 0 ? static_cast<size_t>(count) : 0;
  }
  require<FileError>(fsync(descriptor_) == 0 || errno == EINVAL || errno == EROFS,
                     "journal: ", printable(path_), ": ", reason());
}

}  // namespace rocm_sd::cli
