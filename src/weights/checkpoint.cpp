#include "weights/checkpoint.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "base/format.hpp"
#include "weights/checkpoint_parts.hpp"
#include "weights/ldm_export.hpp"

namespace rocm_sd {

namespace fs = std::filesystem;
using nlohmann::json;

Checkpoint::Checkpoint(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

const fs::path& Checkpoint::path() const { return parts_->path; }
ModelKind Checkpoint::kind() const { return parts_->kind; }
bool Checkpoint::is_folder() const { return parts_->folder; }
Prediction Checkpoint::prediction() const { return parts_->prediction; }
const std::string& Checkpoint::prediction_source() const { return parts_->prediction_source; }
bool Checkpoint::zero_terminal_snr() const { return parts_->zero_terminal_snr; }
const Metadata& Checkpoint::metadata() const {
  const WeightStore* unet = find(Component::kUnet);
  return parts_->folder && unet != nullptr ? unet->files().front()->metadata() : parts_->metadata;
}
const std::vector<std::string>& Checkpoint::notes() const { return parts_->loader.notes; }
const WeightStore* Checkpoint::find(Component component) const { return parts_->find(component); }

int Checkpoint::in_channels() const {
  const WeightStore* unet = find(Component::kUnet);
  if (unet == nullptr || !unet->has("conv_in.weight")) return 4;
  const Shape& shape = unet->shape("conv_in.weight");
  require(shape.rank() == 4 && shape[1] <= 1024, "conv_in.weight: expected [channels,in,3,3], ",
          unet->title(), " has ", shape);
  return static_cast<int>(shape[1]);
}

const WeightStore& Checkpoint::store(Component component) const {
  const WeightStore* store = find(component);
  require<FormatError>(store != nullptr, printable_path(path()), ": has no ", component_name(component),
                       "; give one as a separate file");
  return *store;
}

const json& Checkpoint::config(Component component) const {
  store(component);
  return *parts_->components.at(component).config;
}
bool Checkpoint::config_is_derived(Component component) const {
  store(component);
  return parts_->components.at(component).config_is_derived;
}
const std::vector<std::string>& Checkpoint::unknown_tensors(Component component) const {
  store(component);
  return parts_->components.at(component).unknown;
}

std::vector<std::string> Checkpoint::names_in_file(Component component,
                                                   const std::vector<std::string>& names) const {
  store(component);
  const LoadedComponent& loaded = parts_->components.at(component);
  const std::set<std::string, std::less<>> all(names.begin(), names.end());
  const auto has = [&](const std::string& name) { return all.contains(name); };
  int levels = 0;
  while (has(fmt::format("decoder.up_blocks.{}.resnets.0.conv1.weight", levels))) ++levels;
  const bool ldm = loaded.style == NameStyle::kLdm;
  const LdmUnetExport unet(ldm ? LdmUnetExport::Has(has) : [](const std::string&) { return false; });
  std::vector<std::string> out;
  for (const std::string& name : names) {
    std::optional<std::string> named;
    if (ldm) named = component == Component::kUnet ? unet.ldm_name(name) : ldm_vae_name(name, levels);
    if (loaded.style == NameStyle::kOpenClip) named = open_clip_name(name);
    if (loaded.style == NameStyle::kDiffusers || loaded.style == NameStyle::kTransformers) named = name;
    out.push_back(named ? loaded.prefix + *named : name);
  }
  return out;
}

const json* Checkpoint::scheduler_config() const { return parts_->scheduler ? &*parts_->scheduler : nullptr; }
const json* Checkpoint::model_index() const { return parts_->index ? &*parts_->index : nullptr; }

std::optional<fs::path> Checkpoint::tokenizer_folder(Component text_encoder) const {
  const auto it = parts_->tokenizers.find(text_encoder);
  return it == parts_->tokenizers.end() ? std::nullopt : std::optional(it->second);
}

KeyReport Checkpoint::key_report() const {
  KeyReport report = parts_->loader.keys;
  for (const auto& [component, loaded] : parts_->components) {
    const bool vae = component == Component::kVae || component == Component::kTinyVae;
    for (std::string& name : loaded.store.unused())
      if (!vae || !(name.starts_with("encoder.") || name.starts_with("quant_conv.")))
        report.unused.push_back(std::move(name));
  }
  return report;
}

}  // namespace rocm_sd
