// Finding the files of a Diffusers folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weights/component.hpp"

namespace rocm_sd {

// The weights of a component's folder: the file or index to open. Order: the plain file, then *.fp16.*; the
// other way round where variant is "fp16" (or another variant's name); .bin files of torch.save where there
// are no safetensors. A line goes to notes where there was a choice. Throws FormatError where there is
// nothing.
std::filesystem::path component_weights(const std::filesystem::path& folder, Component component,
                                        const std::string& variant, std::vector<std::string>& notes);

// <folder>/tokenizer or tokenizer_2 for a text encoder, where there is such a folder; else a line goes to
// notes.
std::optional<std::filesystem::path> tokenizer_folder_in(const std::filesystem::path& folder,
                                                         Component text_encoder,
                                                         std::vector<std::string>& notes);

}  // namespace rocm_sd
