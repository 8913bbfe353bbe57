// Converting checkpoints: LDM single file (safetensors or GGUF) <-> Diffusers folder, and the element type.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weights/checkpoint.hpp"
#include "weights/component_tensors.hpp"

namespace rocm_sd {

struct ConvertOptions {
  // Of all float tensors; nothing: as stored (scaled fp8 and the blocks of a GGUF file become f16).
  std::optional<DType> dtype;
  // Of a GGUF file's matrices (gguf_stored_type), in place of dtype; nothing: as above.
  std::optional<GgmlType> gguf_type;
  CheckpointOptions source;  // replaced components, variant, access
  std::filesystem::path
      vocabulary;  // folder with vocab.json and merges.txt, for folders made from single files
  // Asked of the opened source, before anything is written: weights that are written changed. May be empty.
  std::function<std::shared_ptr<const ChangedWeights>(const Checkpoint&)> change;
  bool overwrite = false;
  CheckpointCheck check;                            // of the source, before anything is written; may be empty
  std::function<void(const std::string&)> on_note;  // a line for the user; may be empty
  std::function<bool()> cancelled;                  // asked every few MB; true: CancelledError, and no target
};

// Writes `to`: an LDM single file where the name ends in ".safetensors" or ".gguf", else a Diffusers folder.
// Every file is written beside its place and renamed, and so is a folder as a whole (into one that exists
// already its files are moved when all are written). Memory stays at a few tens of MB. Throws UsageError
// where the target exists or the type does not go with it, FileError, FormatError and CancelledError; then
// nothing is left behind.
void convert(const std::filesystem::path& from, const std::filesystem::path& to,
             const ConvertOptions& options);

// scheduler_config.json for a model whose source has none.
nlohmann::ordered_json default_scheduler_config(ModelKind kind, Prediction prediction,
                                                bool zero_terminal_snr);

}  // namespace rocm_sd
