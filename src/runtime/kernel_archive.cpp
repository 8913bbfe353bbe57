#include "runtime/kernel_archive.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checked.hpp"
#include "base/json.hpp"
#include "base/paths.hpp"

namespace rocm_sd {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMagic = "RSDKERN\n";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMaxIndexBytes = 32u << 20;
constexpr uint64_t kMaxObjectBytes = 1u << 30;

struct Header {
  char magic[8];
  uint32_t version, zero;
  uint64_t index_bytes;
};
static_assert(sizeof(Header) == 24);

// A member of the index, checked for its type.
class Index {
 public:
  Index(const nlohmann::json& json, const std::string& what) : json_(json), what_(what) {
    require<FormatError>(json.is_object(), what, ": kernel archive: the index must hold objects");
  }

  const nlohmann::json& array(const char* key) const {
    const nlohmann::json& value = member(key);
    require<FormatError>(value.is_array(), what_, ": kernel archive: ", key, " must be an array");
    return value;
  }
  uint64_t number(const char* key, uint64_t most) const {
    const nlohmann::json& value = member(key);
    require<FormatError>(value.is_number_unsigned() && value.get<uint64_t>() <= most, what_,
                         ": kernel archive: ", key, " must be a number up to ", most);
    return value.get<uint64_t>();
  }
  std::string name(const char* key) const {  // 1 to 300 printable ASCII characters
    const nlohmann::json& value = member(key);
    const bool text = value.is_string();
    const std::string name = text ? value.get<std::string>() : "";
    const bool printable_ascii =
        std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
    require<FormatError>(text && !name.empty() && name.size() <= 300 && printable_ascii, what_,
                         ": kernel archive: ", key, " must be a short text, is ", printable(value.dump()));
    return name;
  }
  uint64_t hash(const char* key) const {
    const std::string text = name(key);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    require<FormatError>(error == std::errc() && end == text.data() + text.size(), what_,
                         ": kernel archive: ", key, " must be a hexadecimal number");
    return value;
  }

 private:
  const nlohmann::json& member(const char* key) const {
    const auto found = json_.find(key);
    require<FormatError>(found != json_.end(), what_, ": kernel archive: the index lacks \"", key, "\"");
    return *found;
  }

  const nlohmann::json& json_;
  const std::string& what_;
};

uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

KernelArchive::KernelArchive(const fs::path& path) : file_(path) {
  const std::string what = printable_path(path);
  Header header;
  require<FormatError>(file_.size() >= sizeof(header), what, ": kernel archive: ", file_.size(),
                       " bytes are too few");
  file_.read_at(0, &header, sizeof(header));
  require<FormatError>(std::memcmp(header.magic, kMagic.data(), kMagic.size()) == 0, what,
                       ": is no kernel archive");
  require<FormatError>(header.version == kVersion, what, ": kernel archive of version ", header.version,
                       "; this program reads version ", kVersion);
  require<FormatError>(
      header.index_bytes <= kMaxIndexBytes && header.index_bytes <= file_.size() - sizeof(header), what,
      ": kernel archive: an index of ", header.index_bytes, " bytes in a file of ", file_.size());
  std::string text(header.index_bytes, '\0');
  file_.read_at(sizeof(header), text.data(), text.size());
  const nlohmann::json json = parse_json(text, {.max_bytes = kMaxIndexBytes}, what);
  const Index index(json, what);
  target_ = index.name("target");
  compiler_ = index.name("compiler");
  const uint64_t blobs = sizeof(header) + header.index_bytes;
  for (const nlohmann::json& item : index.array("objects")) {
    const Index entry(item, what);
    const ArchivedObject object{.name = entry.name("name"),
                                .offset = checked_add(blobs, entry.number("offset", file_.size()), what),
                                .size = entry.number("size", kMaxObjectBytes),
                                .hash = entry.hash("hash")};
    require<FormatError>(object.size > 0 && checked_add(object.offset, object.size, what) <= file_.size(),
                         what, ": kernel archive: ", object.name, " lies outside the file");
    for (const nlohmann::json& kernel_item : entry.array("kernels")) {
      const Index kernel(kernel_item, what);
      const std::string name = kernel.name("name");
      const auto number = [&](const char* key) {
        return static_cast<uint32_t>(kernel.number(key, UINT32_MAX));
      };
      const bool added = kernels_
                             .emplace(name, ArchivedKernel{.object = objects_.size(),
                                                           .params = number("params"),
                                                           .lds = number("lds"),
                                                           .scratch = number("scratch"),
                                                           .registers = number("registers")})
                             .second;
      require<FormatError>(added, what, ": kernel archive: ", name, " is there twice");
    }
    objects_.push_back(object);
  }
}

std::string KernelArchive::read(const ArchivedObject& object) const {
  std::string bytes(object.size, '\0');
  file_.read_at(object.offset, bytes.data(), bytes.size());
  require<FormatError>(fnv1a(bytes) == object.hash, printable_path(path()), ": kernel archive: the bytes of ",
                       object.name, " are not those that were packed");
  return bytes;
}

std::vector<fs::path> kernel_folders() {
  if (const char* set = std::getenv("ROCM_SD_KERNELS"); set && *set) return {fs::path(set)};
  std::vector<fs::path> folders;
  for (const fs::path& here : program_folders()) {
    const fs::path above = here.parent_path();
    for (const fs::path& folder :
         {here, here / "rocm-sd", above / "lib" / "rocm-sd", above / ROCM_SD_INSTALLED_KERNELS})
      if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
  }
  if (const auto build = build_folder()) folders.push_back(*build / "lib");
  return folders;
}

std::optional<fs::path> find_kernel_archive(std::string_view target) {
  for (const fs::path& folder : kernel_folders()) {
    fs::path file = folder / concat("kernels_", target, ".rsk");
    if (path_exists(file)) return file;
  }
  return std::nullopt;
}

std::vector<std::string> archived_targets() {
  constexpr std::string_view kPrefix = "kernels_", kSuffix = ".rsk";
  std::set<std::string> targets;
  for (const fs::path& folder : kernel_folders()) {
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with(kPrefix) && name.ends_with(kSuffix) &&
          name.size() > kPrefix.size() + kSuffix.size())
        targets.insert(name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
    }
  }
  return {targets.begin(), targets.end()};
}

}  // namespace rocm_sd
