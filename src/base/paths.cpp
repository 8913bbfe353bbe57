// Search for the shipped files.
#include "base/paths.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.hpp"

namespace rocm_sd {
namespace fs = std::filesystem;

std::vector<fs::path> program_folders() {
  std::vector<fs::path> folders;
  std::error_code failed;  // no /proc in some chroots: the library's place remains
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
  if (!failed && executable.has_parent_path()) folders.push_back(executable.parent_path());
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&program_folders), &self) == 0 || self.dli_fname == nullptr)
    return folders;
  // Of an executable this is argv[0]: a bare name says nothing of a place, least of all the working folder.
  if (std::strchr(self.dli_fname, '/') == nullptr) return folders;
  const fs::path library = fs::canonical(self.dli_fname, failed);
  if (!failed && library != executable && library.has_parent_path()) folders.push_back(library.parent_path());
  return folders;
}

std::optional<fs::path> build_folder() {
  for (fs::path folder : program_folders()) {
    for (; folder.has_relative_path(); folder = folder.parent_path()) {
      std::error_code failed;
      if (fs::exists(folder / "CMakeCache.txt", failed)) return folder;
    }
  }
  return std::nullopt;
}

std::vector<fs::path> share_folders() {
  if (const char* set = std::getenv("ROCM_SD_SHARE"); set != nullptr && *set != '\0') return {fs::path(set)};
  std::vector<fs::path> folders;
  for (const fs::path& here : program_folders()) {
    const fs::path above = here.parent_path();  // bin, lib; in Debian's layout lib/x86_64-linux-gnu
    folders.push_back(above / "share" / "rocm-sd");
    folders.push_back(above.parent_path() / "share" / "rocm-sd");
    folders.push_back(above / "share");
  }
  if (const auto build = build_folder()) folders.push_back(*build / "share" / "rocm-sd");
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
