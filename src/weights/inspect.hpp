// What a model file or folder holds, told without loading its tensors.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weights/checkpoint.hpp"

namespace rocm_sd {

// Keys: path, bytes, type ("sdxl", "a LoRA", "unknown"), problem (why it would not load; absent if it would),
// prediction, in_channels, components [{name, layout, parameters, bytes, dtypes {name: {tensors, bytes}},
// scaled_fp8 {layers, input_scales, formats} where there are factors}],
// tensors, metadata, largest [{name, dtype, shape, bytes}], harmless, unexpected, notes;
// of files beside a model what describe_adapter adds (inspect_adapters.hpp). path may be a folder of one
// component, a ControlNet or a T2I-Adapter, too. check: what the loader asks of a
// checkpoint beyond opening it (require_complete of src/models); what it throws is a problem, too. Throws
// FileError and FormatError where the file itself cannot be read.
nlohmann::ordered_json inspect(const std::filesystem::path& path, size_t largest = 10,
                               const CheckpointCheck& check = {});

// The same for people; everything that comes from the file is escaped.
std::string inspect_text(const nlohmann::ordered_json& report);

}  // namespace rocm_sd
