#include "weights/weights_files.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/file.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxDepth = 16;  // links in a circle

// Smaller is preferred.
ptrdiff_t preference(const std::filesystem::path& path) {
  return std::ranges::find(kWeightsEndings, std::string_view(path.extension().native())) - kWeightsEndings;
}

}  // namespace

std::string_view weights_ending(std::string_view name) {
  for (const std::string_view ending : kWeightsEndings)
    if (name.ends_with(ending)) return ending;
  return {};
}

std::map<std::string, std::filesystem::path> weights_files_below(const std::filesystem::path& folder,
                                                                 std::string_view option) {
  namespace fs = std::filesystem;
  std::map<std::string, fs::path> out;
  std::error_code error;
  const auto how =
      fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
  auto entry = fs::recursive_directory_iterator(folder, how, error);
  require<FileError>(!error, option, ": ", printable_path(folder), ": ", error.message());
  for (; entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    require<FileError>(!error, option, ": ", printable_path(folder), ": ", error.message());
    if (entry.depth() > kMaxDepth) entry.disable_recursion_pending();
    std::error_code ignored;
    const fs::path& path = entry->path();
    if (weights_ending(path.native()).empty() || !entry->is_regular_file(ignored)) continue;
    const auto [known, is_new] = out.try_emplace(path.stem().string(), path);
    if (!is_new && preference(path) < preference(known->second)) known->second = path;
  }
  return out;
}

}  // namespace rocm_sd
