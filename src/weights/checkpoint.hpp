// Checkpoint: a model on disk, recognised and taken apart into components: an LDM single file, a bare
// component file, or a Diffusers folder, with any component replaced from another file.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weights/store.hpp"

namespace rocm_sd {

// Files or folders that replace a component. Each may be a file with that component alone, a whole checkpoint
// of which only that component is taken, a component's Diffusers folder, or a whole Diffusers folder. Empty:
// not replaced.
struct CheckpointOptions {
  std::filesystem::path unet, vae, text_encoder, text_encoder_2;
  std::vector<std::filesystem::path>
      tiny_vae;         // TAESD: one file with both halves, or encoder and decoder apart
  std::string variant;  // "fp16": prefer *.fp16.safetensors where a folder has both
  FileAccess access = FileAccess::kRead;
  LiveComponents live;  // components of a Diffusers folder whose tensors are in memory, not in its files
};

class Checkpoint {
 public:
  // Throws FileError, FormatError: not a model, or not one of the supported kinds (the message says what it
  // is instead).
  static Checkpoint open(const std::filesystem::path& model, const CheckpointOptions& options = {});
  // Of a single file that is open already.
  static Checkpoint open(const TensorSet& tensors, const CheckpointOptions& options = {});
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const;
  ModelKind kind() const;
  int in_channels()
      const;               // of the UNet: 4, 9 (inpainting) or 8 (instruct-pix2pix); 4 where there is no UNet
  bool is_folder() const;  // a Diffusers folder

  // What the UNet predicts, and how that is known ("scheduler_config.json", "metadata", "key v_pred",
  // "default", ...).
  Prediction prediction() const;
  const std::string& prediction_source() const;
  bool zero_terminal_snr() const;

  // The component's tensors. store() throws FormatError naming the component where the model has none.
  const WeightStore* find(Component component) const;
  const WeightStore& store(Component component) const;

  // The component's configuration with the keys of Diffusers' config.json (transformers' for the text
  // encoders). Where the source has no config.json it is derived from the tensors' shapes and the kind.
  // Throws like store().
  const nlohmann::json& config(Component component) const;
  bool config_is_derived(Component component) const;
  // Tensors that stand among the component's own and that no known structure has, by their names in the file.
  const std::vector<std::string>& unknown_tensors(Component component) const;
  // What the file would call these canonical names, in their order, for messages about missing ones: `names`
  // are all that the component should have. A name that the layout does not know is given back as it is.
  std::vector<std::string> names_in_file(Component component, const std::vector<std::string>& names) const;
  // scheduler/scheduler_config.json; null where there is none.
  const nlohmann::json* scheduler_config() const;
  // model_index.json; null where there is none.
  const nlohmann::json* model_index() const;

  // The tokenizer's folder of a text encoder (tokenizer/, tokenizer_2/); nothing for single
  // files.
  std::optional<std::filesystem::path> tokenizer_folder(Component text_encoder) const;

  const Metadata& metadata() const;  // of the model's single file, else of the UNet's first file
  // Choices made where there were several candidates, and oddities that a user should know; one line each.
  const std::vector<std::string>& notes() const;
  // Tensors unused so far over all components, and names in the files that belong to no known part. The
  // encoder half of a VAE is not counted: it is loaded only when a picture is to be encoded.
  KeyReport key_report() const;

 private:
  struct Parts;
  friend class CheckpointOpener;
  explicit Checkpoint(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Throws where a checkpoint is not what its user needs.
using CheckpointCheck = std::function<void(const Checkpoint&)>;

}  // namespace rocm_sd
