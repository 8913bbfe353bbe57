// Where the files that ship with the program are.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace rocm_sd {

// The folder of the running executable, and that of the shared library that holds this code where it is
// another one. No links in them. Nothing of what the system does not tell.
std::vector<std::filesystem::path> program_folders();

// The build folder that one of program_folders() lies in: it has a CMakeCache.txt. Nothing for installed
// copies, which therefore never look at the tree that they were built from.
std::optional<std::filesystem::path> build_folder();

// The folders that may hold the shipped files, best first: $ROCM_SD_SHARE (alone, if set), share/rocm-sd in
// the prefix of the program and in that of the library, share beside the library's folder (a Python package),
// the build folder's share/rocm-sd. No path is compiled in: a prefix may be moved.
std::vector<std::filesystem::path> share_folders();

// The first of share_folders() that has `relative` ("vocab/clip/merges.txt"); throws FileError naming all of
// them.
std::filesystem::path share_path(std::string_view relative);

}  // namespace rocm_sd
