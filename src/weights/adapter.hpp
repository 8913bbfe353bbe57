// Files of LoRA and its relatives: small changes to a model's weights, whatever tool wrote them.
//
// Key styles: kohya-ss (lora_unet_..., lora_te1_..., with Diffusers' or LDM's module names), Diffusers
// (unet..., text_encoder..., also those of its old attention processors), PEFT (lora_A, lora_B), LyCORIS
// (hada_, lokr_). Algorithms: LoRA and LoCon (Hu et al. 2021, arXiv 2106.09685), LoHa (FedPara, arXiv
// 2108.06098), LoKr (KronA, arXiv 2212.10650), DoRA (arXiv 2402.09353), IA3 (arXiv 2205.05638), whole
// differences.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weights/block_weights.hpp"
#include "weights/store.hpp"

namespace rocm_sd {

enum class AdapterKind { kLora, kLoha, kLokr, kIa3, kDifference };
std::string_view adapter_kind_name(AdapterKind kind);  // "LoRA", "LoHa", ...

// The change to one weight (or bias, or norm) of a model.
struct AdapterModule {
  AdapterKind kind = AdapterKind::kLora;
  std::string key;                           // the module's name in the file
  std::string target;                        // canonical name of the tensor that it changes
  std::map<std::string, std::string> parts;  // role ("down", "up", "hada_w1_a") -> tensor in the file
  double scale = 1;                          // alpha / rank
  int64_t rank = 0;                          // 0 where there is none
  bool on_input = false;                     // IA3: scales inputs rather than outputs
  bool magnitude_on_input = false;           // DoRA: one magnitude for each input rather than output
  int block = -1;                            // that it belongs to (lora_block())

  bool has(const std::string& role) const { return parts.contains(role); }
  bool is_dora() const { return has("magnitude"); }
};

// The tensors of a model that an adapter may change, by every name that a file may give their modules.
class AdapterTargets {
 public:
  struct Target {
    Component component = Component::kUnet;
    std::string name;  // canonical, with ".weight" or ".bias"
    Shape shape;
    int block = -1;  // lora_block()
  };
  // Names of every component that the model has. The UNet's LDM names count too.
  void add(const WeightStore& store);
  // stem: the module's name in the file; leaf: "weight" or "bias". Null where no module has that name.
  const Target* find(std::string_view stem, std::string_view leaf) const;

 private:
  void add_stem(std::string stem, const Target& target);
  std::map<std::string, Target, std::less<>> targets_;  // by stem + "." + leaf
};

class PeftConfig;  // what a file says of its scales in its metadata

// An adapter's file, every tensor of it understood and checked against the model. Immutable; thread-safe.
class AdapterFile {
 public:
  // Throws FileError; FormatError for a file that is no adapter, for keys that belong to no module of the
  // model (all are counted, some are listed, and the base model that the file names), parts that are missing,
  // ranks that differ, values that are not finite; ShapeError where a module does not fit its weight.
  static std::shared_ptr<const AdapterFile> open(const std::filesystem::path& path,
                                                 const AdapterTargets& targets, std::string_view model_kind);

  // The same of tensors that are open already.
  static std::shared_ptr<const AdapterFile> of(const TensorSet& tensors, const AdapterTargets& targets,
                                               std::string_view model_kind);

  const std::filesystem::path& path() const { return path_; }
  const Metadata& metadata() const { return tensors_.files().front()->metadata(); }
  // Modules of a component by the canonical name of the tensor that they change.
  using Modules = std::map<std::string, AdapterModule, std::less<>>;
  const Modules& modules(Component component) const;
  size_t size() const;  // modules of all components
  // A tensor of a module in f32, row-major.
  std::vector<float> values(const AdapterModule& module, const std::string& role) const;
  const Shape& shape(const AdapterModule& module, const std::string& role) const;
  // SHA-256 of the tensors' bytes without the header, as A1111 names a LoRA by ("addnet hash").
  const std::string& hash() const;

 private:
  AdapterFile(std::filesystem::path path, WeightStore tensors)
      : path_(std::move(path)), tensors_(std::move(tensors)) {}
  void add(const std::string& stem, std::map<std::string, std::string> parts, const AdapterTargets& targets,
           const PeftConfig& peft);
  void check_finite() const;

  std::filesystem::path path_;
  WeightStore tensors_;  // by their names in the file
  std::map<Component, Modules> modules_;
  mutable std::once_flag hashed_;
  mutable std::string hash_;
};

// What a file says of itself without a model: for `inspect`.
struct AdapterSummary {
  std::map<std::string, int64_t> algorithms;  // "LoRA" -> modules
  std::map<std::string, int64_t> components;  // "unet", "text_encoder", "text_encoder_2" -> modules
  std::map<int64_t, int64_t> ranks;           // rank -> modules
  int64_t unknown = 0;                        // tensors of no known role
  std::string base_model;                     // as the metadata says; empty where they do not
};
// Nothing where the file holds no adapter.
std::optional<AdapterSummary> summarise_adapter(const TensorSet& tensors);

}  // namespace rocm_sd
