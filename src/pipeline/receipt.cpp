#include "pipeline/receipt.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "weights/file_hash.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr const char* kVersionKey = "rocm_sd_receipt";
constexpr size_t kMaxBytes = 4u << 20, kMaxFolderFiles = 4096;
constexpr uint64_t kSmallFile = 8u << 20;

const nlohmann::json& field(const nlohmann::json& root, const char* name, nlohmann::json::value_t type,
                            std::string_view what) {
  const auto it = root.find(name);
  const bool there =
      it != root.end() &&
      (it->type() == type || (it->is_number_unsigned() && type == nlohmann::json::value_t::number_integer));
  require<FormatError>(there, what, ": the receipt has no proper \"", name, "\"");
  return *it;
}
std::string text_field(const nlohmann::json& root, const char* name, std::string_view what) {
  return field(root, name, nlohmann::json::value_t::string, what).get<std::string>();
}
int64_t number_field(const nlohmann::json& root, const char* name, int64_t most, std::string_view what) {
  const nlohmann::json& value = field(root, name, nlohmann::json::value_t::number_integer, what);
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(most)
                                               : value.get<int64_t>() >= 0 && value.get<int64_t>() <= most;
  require<FormatError>(fits, what, ": the receipt's \"", name, "\": expected 0 to ", most);
  return value.get<int64_t>();
}
const nlohmann::json& list_field(const nlohmann::json& root, const char* name, std::string_view what) {
  return field(root, name, nlohmann::json::value_t::array, what);
}

// "models/demo/" -> "demo"
std::string name_of(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

std::string receipt_text(const Receipt& r) {
  Json root = {{kVersionKey, kVersion},
               {"version", r.version},
               {"device", r.device},
               {"driver", r.driver},
               {"precision", r.precision},
               {"kernel_code", r.kernel_code},
               {"kernel_choices", r.kernel_choices},
               {"picture", r.picture},
               {"quality", r.quality},
               {"options", Json::array()},
               {"files", Json::array()},
               {"seconds", Json::object()},
               {"planned_bytes", r.planned_bytes},
               {"peak_bytes", r.peak_bytes}};
  for (const auto& [name, value] : r.options) root["options"].push_back({name, value});
  for (const ReceiptFile& file : r.files)
    root["files"].push_back({{"option", file.option},
                             {"name", file.name},
                             {"path", file.path},
                             {"bytes", file.bytes},
                             {"sha256", file.sha256}});
  for (const StageTime& time : r.times) root["seconds"][time.stage] = time.seconds;
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Receipt parse_receipt(std::string_view text, std::string_view what) {
  const nlohmann::json root = parse_json(text, {.max_bytes = kMaxBytes, .max_depth = 6}, what);
  require<FormatError>(root.is_object() && root.contains(kVersionKey), what, ": no receipt of rocm-sd");
  require<FormatError>(root[kVersionKey] == kVersion, what, ": a receipt of version ",
                       root[kVersionKey].dump(), ", expected ", kVersion);
  Receipt out;
  out.version = text_field(root, "version", what);
  out.device = text_field(root, "device", what);
  out.driver = text_field(root, "driver", what);
  out.precision = text_field(root, "precision", what);
  out.kernel_code = text_field(root, "kernel_code", what);
  out.kernel_choices = text_field(root, "kernel_choices", what);
  out.picture = static_cast<int>(number_field(root, "picture", 63, what));
  out.quality = static_cast<int>(number_field(root, "quality", 100, what));
  for (const nlohmann::json& option : list_field(root, "options", what)) {
    require<FormatError>(
        option.is_array() && option.size() == 2 && option[0].is_string() && option[1].is_string(), what,
        ": the receipt's \"options\": expected pairs of name and value");
    out.options.emplace_back(option[0].get<std::string>(), option[1].get<std::string>());
  }
  for (const nlohmann::json& file : list_field(root, "files", what)) {
    require<FormatError>(file.is_object(), what, ": the receipt's \"files\": expected objects");
    out.files.push_back({text_field(file, "option", what), text_field(file, "path", what),
                         static_cast<uint64_t>(number_field(file, "bytes", INT64_MAX, what)),
                         text_field(file, "sha256", what), text_field(file, "name", what)});
    const std::string& name = out.files.back().name;
    require<FormatError>(!name.empty() && name != "." && name != ".." && name.find('/') == name.npos, what,
                         ": the receipt's \"name\": expected a plain file name");
  }
  return out;
}

std::vector<std::string> receipt_differences(const Receipt& then, const Receipt& now) {
  std::vector<std::string> out;
  const auto compare = [&](const char* name, const std::string& a, const std::string& b) {
    if (a != b) out.push_back(concat(name, ": ", printable(a), " then, ", printable(b), " now"));
  };
  compare("version", then.version, now.version);
  compare("device", then.device, now.device);
  compare("driver", then.driver, now.driver);
  compare("precision", then.precision, now.precision);
  compare("kernels", then.kernel_code, now.kernel_code);
  compare("kernel choices", then.kernel_choices, now.kernel_choices);
  return out;
}

ReceiptFile identify_file(const std::string& option, const std::string& path) {
  std::error_code error;
  // What is hashed at once is not worth remembering.
  const auto hash = [](const fs::path& file, uint64_t bytes) {
    return bytes < kSmallFile ? sha256_of_file(file) : cached_sha256(file, hash_cache_file());
  };
  if (!is_folder_path(path)) {
    const uint64_t bytes = fs::file_size(path, error);
    return {option, path, error ? 0 : bytes, hash(path, error ? 0 : bytes), name_of(path)};
  }
  std::vector<fs::path> files;
  for (auto it =
           fs::recursive_directory_iterator(path, fs::directory_options::follow_directory_symlink, error);
       !error && it != fs::recursive_directory_iterator() && files.size() < kMaxFolderFiles;
       it.increment(error))
    if (it->is_regular_file(error)) files.push_back(it->path());
  require<FileError>(!error, printable_path(path), ": ", error.message());
  std::ranges::sort(files);
  ReceiptFile out{option, path, 0, "", name_of(path)};
  std::string names;
  for (const fs::path& file : files) {
    const uint64_t bytes = fs::file_size(file, error);
    out.bytes += bytes;
    names += concat(file.lexically_relative(path).string(), " ", hash(file, bytes), "\n");
  }
  out.sha256 = sha256_of_text(names);
  return out;
}

std::string driver_versions() {
  utsname system{};
  std::string out = uname(&system) == 0 ? concat("linux ", system.release) : "";
  for (const char* module : {"amdgpu", "nvidia"}) {
    std::ifstream file(concat("/sys/module/", module, "/version"));
    std::string version;
    if (file >> version) out += concat(out.empty() ? "" : ", ", module, " ", version);
  }
  return out;
}

}  // namespace rocm_sd
