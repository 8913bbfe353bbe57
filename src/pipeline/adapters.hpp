// LoRAs of a pipeline: found by name or path, opened once, merged into the weights that a request draws with.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/adapted_source.hpp"
#include "rocm_sd/pipeline.hpp"
#include "weights/checkpoint.hpp"

namespace rocm_sd {

// A LoRA at work.
struct ActiveAdapter {
  std::shared_ptr<const AdapterFile> file;
  std::string name;  // file name without its ending
  double weight = 1, te_weight = 1;
  BlockWeights blocks = {};

  double strength(Component component) const { return component == Component::kUnet ? weight : te_weight; }
  friend bool operator==(const ActiveAdapter&, const ActiveAdapter&) = default;
};

// The component's share of them; those without strength or modules are left out.
std::vector<AdapterUse> adapter_uses(const std::vector<ActiveAdapter>& adapters, Component component);

// "FILE[:WEIGHT[:TE_WEIGHT]][:lbw=BLOCKS]" as --lora takes it; one number weighs both. Throws UsageError.
LoraUse parse_lora_use(std::string_view text);

// The prompts of the batch's images: as many as they are, or the one of all.
std::span<const std::string> image_prompts(const GenerateRequest& request);

// The <lora:...> tags of image_prompts()[image], then the request's own list.
std::vector<LoraUse> requested_loras(const GenerateRequest& request, size_t image = 0);

// How strongly each of the LoRAs that act at run time acts on each of image_prompts(): [images][adapters].
struct AdapterStrengths {
  std::vector<std::vector<float>> unet, text;
  const std::vector<std::vector<float>>& of(Component component) const {
    return component == Component::kUnet ? unet : text;
  }
};

class AdapterLibrary {
 public:
  // folder: LoadOptions::lora_dir, or empty.
  explicit AdapterLibrary(std::string folder) : folder_(std::move(folder)) {}

  // Opens what is asked for and checks it against the model. Throws UsageError for names that are not in the
  // folder (with the nearest ones), and what AdapterFile::open throws.
  std::vector<ActiveAdapter> open(const std::vector<LoraUse>& uses, const Checkpoint& checkpoint);

 private:
  std::filesystem::path find(const std::string& name);
  void check_weight(const std::string& name) const;

  std::string folder_;
  std::optional<AdapterTargets> targets_;                 // of the checkpoint, which stays the same
  std::map<std::string, std::filesystem::path> by_name_;  // of the folder's files, by stem
  struct Opened {
    std::filesystem::file_time_type changed;
    std::shared_ptr<const AdapterFile> file;
  };
  std::map<std::filesystem::path, Opened> opened_;
};

}  // namespace rocm_sd
