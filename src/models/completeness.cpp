#include "models/completeness.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/format.hpp"
#include "models/clip.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"
#include "weights/name_extent.hpp"
#include "weights/name_map.hpp"

namespace rocm_sd {
namespace {

using Parts = std::vector<ParameterSlot::Part>;

constexpr size_t kNamed = 12;  // tensors that a message names; the rest are counted

void append(Parts& to, Parts more) { to.insert(to.end(), more.begin(), more.end()); }

// What the component's models read. A half of a VAE that is not there at all is not asked for, unless it is
// the decoder, which every picture needs.
Parts expected_parts(const Checkpoint& checkpoint, Component component) {
  const nlohmann::json& config = checkpoint.config(component);
  const WeightStore& store = checkpoint.store(component);
  const std::string title = config_title(checkpoint, component);
  Parts out;
  switch (component) {
    case Component::kUnet: return list_parameters(UNet(unet_config(config, title)));
    case Component::kTextEncoder:
    case Component::kTextEncoder2: return list_parameters(ClipTextModel(clip_config(config, title)));
    case Component::kVae: {
      const VaeConfig vae = vae_config(config, title);
      append(out, list_parameters(VaeDecoder(vae)));
      if (has_any(store, "encoder.")) append(out, list_parameters(VaeEncoder(vae)));
      return out;
    }
    case Component::kTinyVae: {
      const TaesdConfig tiny = taesd_config(config, title);
      append(out, list_parameters(TaesdDecoder(tiny)));
      if (has_any(store, "encoder.")) append(out, list_parameters(TaesdEncoder(tiny)));
      return out;
    }
  }
  return out;
}

// Tensors that are in the files of known models and that these do not use.
bool is_known_extra(const Checkpoint& checkpoint, Component component, std::string_view name) {
  const nlohmann::json& config = checkpoint.config(component);
  if (component == Component::kVae && name.starts_with("quant_conv."))
    return !has_any(checkpoint.store(component), "encoder.");
  if (component != Component::kTextEncoder) return false;
  if (name == "text_projection.weight") return true;  // of a CLIPTextModelWithProjection or OpenCLIP
  const auto layer = numbered(name, "text_model.encoder.layers.");
  const auto layers = config.find("num_hidden_layers");
  if (!layer || checkpoint.kind() != ModelKind::kSd2 || layers == config.end() || *layers != layer->number)
    return false;
  const std::string before = fmt::format("text_model.encoder.layers.{}.", layer->number - 1);
  return has_any(checkpoint.store(component), before);
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) out += concat(i ? ", " : "", names[i]);
  if (names.size() > kNamed) out += concat(" and ", names.size() - kNamed, " more");
  return out;
}

// "a.3.b.0." of "a.3.b.0.c.weight": the innermost numbered block that the tensor belongs to.
std::string block_of(const std::string& name) {
  size_t end = 0;
  for (size_t begin = 0, dot; (dot = name.find('.', begin)) != name.npos; begin = dot + 1)
    if (dot > begin && name.find_first_not_of("0123456789", begin) >= dot) end = dot + 1;
  return name.substr(0, end);
}

// Tensors that are there while most of their block is not: one stray tensor of a high number makes a
// structure expect everything below it.
std::vector<std::string> strays(const std::vector<std::string>& names, const WeightStore& store) {
  std::map<std::string, std::pair<int, int>> blocks;  // missing, there
  for (const std::string& name : names) {
    auto& [missing, there] = blocks[block_of(name)];
    ++(store.has(name) ? there : missing);
  }
  std::vector<std::string> out;
  for (const std::string& name : names) {
    const auto& [missing, there] = blocks[block_of(name)];
    if (store.has(name) && missing > there) out.push_back(printable(store.at(name).file_name()));
  }
  return out;
}

}  // namespace

std::string config_title(const Checkpoint& checkpoint, Component component) {
  return concat(checkpoint.store(component).title(),
                checkpoint.config_is_derived(component) ? "" : " (config.json)");
}

void require_complete(const Checkpoint& checkpoint, Component component) {
  const WeightStore& store = checkpoint.store(component);
  const Parts parts = expected_parts(checkpoint, component);
  std::vector<std::string> names, missing, extra = checkpoint.unknown_tensors(component);
  std::vector<size_t> absent;
  for (size_t i = 0; i < parts.size(); ++i) {
    names.push_back(parts[i].name);
    if (!store.has(parts[i].name)) absent.push_back(i);
  }
  const std::set<std::string_view> wanted(names.begin(), names.end());
  for (const auto& [name, tensor] : store.weights())
    if (!wanted.contains(name) && !is_known_extra(checkpoint, component, name) &&
        !is_harmless_leftover(tensor.file_name()))
      extra.push_back(tensor.file_name());
  if (!absent.empty()) {
    const std::vector<std::string> in_file = checkpoint.names_in_file(component, names);
    for (const size_t i : absent) {
      std::string line = concat(printable(in_file[i]), " ", parts[i].shape);
      if (missing.empty() || missing.back() != line)
        missing.push_back(std::move(line));  // q, k and v may be packed
    }
  }
  for (std::string& name : extra) name = printable(name);
  std::string text;
  if (!missing.empty())
    text = concat(missing.size(), " of ", parts.size(), " expected tensors ",
                  missing.size() == 1 ? "is" : "are", " missing: ", listed(missing));
  if (missing.size() > kNamed)
    if (const auto alone = strays(names, store); !alone.empty())
      text += concat("; there without the rest of their block: ", listed(alone));
  if (!extra.empty())
    text +=
        concat(text.empty() ? "" : "; ", extra.size(), extra.size() == 1 ? " tensor has" : " tensors have",
               " no place in this structure: ", listed(extra));
  require<FormatError>(
      text.empty(), store.title(), ": ", text,
      checkpoint.config_is_derived(component)
          ? "; the structure was told from the tensors: a model of an unusual one opens as a "
            "Diffusers folder, whose config.json describes it"
          : "");
  for (const ParameterSlot::Part& part : parts) store.check(part.name, part.shape);
}

void require_complete(const Checkpoint& checkpoint) {
  for (const Component component : kComponents)
    if (checkpoint.find(component) != nullptr) require_complete(checkpoint, component);
}

}  // namespace rocm_sd
