// Files that may hold tensors, by their names.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace rocm_sd {

// How names of files with tensors end, the preferred one first. TensorSet::open looks at contents, not at
// these.
inline constexpr std::string_view kWeightsEndings[] = {".safetensors", ".ckpt", ".pt",
                                                       ".pth",         ".bin",  ".gguf"};

// The ending of kWeightsEndings that the name has, or "".
std::string_view weights_ending(std::string_view name);

// The files below a folder, at any depth and through links, by their names without the ending. Of equal names
// the preferred ending counts, then the first that is met. Throws FileError naming `option` where the folder
// cannot be read.
std::map<std::string, std::filesystem::path> weights_files_below(const std::filesystem::path& folder,
                                                                 std::string_view option);

}  // namespace rocm_sd
