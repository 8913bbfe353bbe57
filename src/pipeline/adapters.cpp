#include "pipeline/adapters.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "pipeline/options.hpp"
#include "text/prompt.hpp"
#include "weights/weights_files.hpp"

namespace rocm_sd {
namespace {

constexpr double kMaxWeight = 100;

// "a:0.5" -> {"a", 0.5}; nothing where what follows the last colon is no number.
std::optional<std::pair<std::string_view, double>> trailing_number(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return std::nullopt;
  try {
    return std::pair{text.substr(0, colon), parse_number(text.substr(colon + 1), -kMaxWeight, kMaxWeight)};
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

AdapterTargets targets_of(const Checkpoint& checkpoint) {
  AdapterTargets targets;
  for (const Component component : {Component::kUnet, Component::kTextEncoder, Component::kTextEncoder2})
    if (const WeightStore* store = checkpoint.find(component)) targets.add(*store);
  return targets;
}

}  // namespace

std::vector<AdapterUse> adapter_uses(const std::vector<ActiveAdapter>& adapters, Component component) {
  std::vector<AdapterUse> out;
  for (const ActiveAdapter& adapter : adapters)
    if (adapter.strength(component) != 0 && !adapter.file->modules(component).empty())
      out.push_back({adapter.file, adapter.strength(component), adapter.blocks});
  return out;
}

LoraUse parse_lora_use(std::string_view text) {
  LoraUse use;
  constexpr std::string_view kBlocks = ":lbw=";
  std::string_view file = text;
  if (const size_t at = text.rfind(kBlocks); at != text.npos) {
    use.blocks = text.substr(at + kBlocks.size());
    require<UsageError>(!use.blocks.empty(), "expected block weights after \"lbw=\", got \"", printable(text),
                        "\"");
    file = text.substr(0, at);
  }
  if (const auto last = trailing_number(file)) {
    file = last->first;
    use.weight = use.te_weight = last->second;
    if (const auto first = trailing_number(file)) {
      file = first->first;
      use.weight = first->second;
    }
  }
  require<UsageError>(!file.empty(), "expected FILE[:WEIGHT[:TE_WEIGHT]][:lbw=BLOCKS], got \"",
                      printable(text), "\"");
  use.file = file;
  return use;
}

std::span<const std::string> image_prompts(const GenerateRequest& request) {
  if (request.prompts.empty()) return {&request.prompt, 1};
  return request.prompts;
}

std::vector<LoraUse> requested_loras(const GenerateRequest& request, size_t image) {
  std::vector<LoraUse> out;
  if (!request.plain_prompt)
    for (const LoraTag& tag : extract_lora_tags(image_prompts(request)[image]).loras)
      out.push_back({tag.name, tag.weight, tag.te_weight, tag.blocks});
  out.insert(out.end(), request.loras.begin(), request.loras.end());
  return out;
}

// Of "a.safetensors:1e9" where a.safetensors is there: what stands behind the colon is no weight.
void AdapterLibrary::check_weight(const std::string& name) const {
  for (size_t colon = name.rfind(':'); colon != name.npos && colon > 0; colon = name.rfind(':', colon - 1)) {
    const std::string file = name.substr(0, colon);
    const bool known = by_name_.contains(file) || (path_exists(file) && !is_folder_path(file));
    require<UsageError>(!known, "lora: ", printable(file), ": expected a weight from ", -kMaxWeight, " to ",
                        kMaxWeight, " behind the colon, got \"", printable(name.substr(colon + 1), 60), "\"");
  }
}

std::filesystem::path AdapterLibrary::find(const std::string& name) {
  const bool looks_like_path = name.find('/') != name.npos || !weights_ending(name).empty();
  if (folder_.empty() || looks_like_path) {
    // A bare name is a file of the working folder only where there is no other folder to look in.
    if (path_exists(name) && !is_folder_path(name)) return name;
    check_weight(name);
    require<FileError>(!looks_like_path, "lora: ", printable(name), ": no such file");
    throw UsageError(
        concat("lora: ", printable(name), ": no such file, and --lora-dir names no folder to look in"));
  }
  if (!by_name_.contains(name)) by_name_ = weights_files_below(folder_, "lora-dir");  // a file may be new
  if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
  check_weight(name);
  std::vector<std::string> names;
  for (const auto& [known, path] : by_name_) names.push_back(known);
  require<UsageError>(!names.empty(), "lora: ", printable(name), ": ", printable(folder_),
                      " holds no .safetensors, .pt or other files of weights");
  throw UsageError(concat("lora: no \"", printable(name), "\" among the ", names.size(), " files in ",
                          printable(folder_), "; did you mean \"", printable(nearest_name(name, names)),
                          "\"?"));
}

std::vector<ActiveAdapter> AdapterLibrary::open(const std::vector<LoraUse>& uses,
                                                const Checkpoint& checkpoint) {
  std::vector<ActiveAdapter> out;
  for (const LoraUse& use : uses) {
    require<UsageError>(std::abs(use.weight) <= kMaxWeight && std::abs(use.te_weight) <= kMaxWeight,
                        "lora: ", printable(use.file), ": expected weights from ", -kMaxWeight, " to ",
                        kMaxWeight, ", got ", use.weight, " and ", use.te_weight);
    BlockWeights blocks;
    if (!use.blocks.empty()) try {
        blocks = parse_block_weights(use.blocks, checkpoint.kind());
      } catch (const UsageError& e) {
        throw UsageError(concat("lora: ", printable(use.file), ": ", e.what()));
      }
    const std::filesystem::path path = find(use.file);
    std::error_code error;
    const auto changed = std::filesystem::last_write_time(path, error);
    Opened& known = opened_[path];
    if (!known.file || known.changed != changed) {
      if (!targets_) targets_ = targets_of(checkpoint);
      known = {changed, AdapterFile::open(path, *targets_, model_kind_name(checkpoint.kind()))};
    }
    out.push_back({known.file, path.stem().string(), use.weight, use.te_weight, std::move(blocks)});
  }
  return out;
}

}  // namespace rocm_sd
