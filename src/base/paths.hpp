// Where the files that ship with the program are.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace rocm_sd {

// The folders that may hold the shipped files, best first: $ROCM_SD_SHARE (alone, if set), ../share/rocm-sd
// beside the executable's folder, the source tree of this build, the configured installation prefix.
std::vector<std::filesystem::path> share_folders();

// The first of share_folders() that has `relative` ("vocab/clip/merges.txt"); throws FileError naming all of
// them.
std::filesystem::path share_path(std::string_view relative);

}  // namespace rocm_sd
