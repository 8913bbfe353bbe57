// Search for the shipped files.
#include "base/paths.hpp"

#include <cstdlib>
#include <string>
#include <system_error>

#include "base/error.hpp"

namespace rocm_sd {
namespace fs = std::filesystem;

std::vector<fs::path> share_folders() {
  if (const char* set = std::getenv("ROCM_SD_SHARE"); set != nullptr && *set != '\0') return {fs::path(set)};
  std::vector<fs::path> folders;
  std::error_code failed;  // no /proc in some chroots: the other places remain
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
  if (!failed && executable.has_parent_path())
    folders.push_back(executable.parent_path().parent_path() / "share" / "rocm-sd");
  folders.emplace_back(ROCM_SD_SOURCE_SHARE);
  folders.emplace_back(ROCM_SD_INSTALLED_SHARE);
  return folders;
}

fs::path share_path(std::string_view relative) {
  std::string tried;
  for (const fs::path& folder : share_folders()) {
    fs::path file = folder / relative;
    std::error_code failed;
    if (fs::exists(file, failed)) return file;
    tried += (tried.empty() ? "" : ", ") + printable(file.string(), 1024);
  }
  throw FileError(concat("shipped file \"", printable(relative), "\" not found; looked at ", tried,
                         " (ROCM_SD_SHARE names another folder)"));
}

}  // namespace rocm_sd
