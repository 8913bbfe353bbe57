#include "base/text.hpp"
#include "weights/adapter.hpp"
#include "weights/adapter_keys.hpp"
#include "weights/ldm_export.hpp"

namespace rocm_sd {

void AdapterTargets::add_stem(std::string stem, const Target& target) {
  const size_t dot = target.name.rfind('.');
  targets_.try_emplace(stem + target.name.substr(dot), target);
}

void AdapterTargets::add(const WeightStore& store) {
  const Component component = store.component();
  const bool unet = component == Component::kUnet;
  if (!unet && component != Component::kTextEncoder && component != Component::kTextEncoder2) return;
  std::optional<LdmUnetExport> ldm;
  if (unet) ldm.emplace(store);
  for (const auto& [name, weight] : store.weights()) {
    const size_t dot = name.rfind('.');
    if (dot == name.npos) continue;
    const std::string module = name.substr(0, dot);
    const auto original = unet ? ldm->ldm_name(name) : std::nullopt;
    const Target target{component, name, weight.shape, lora_block(component, original.value_or(""))};
    if (unet) {
      for (const char* prefix : {"lora_unet_", "lycoris_unet_", "lycoris_"})
        add_stem(prefix + with_underscores(module), target);
      for (const char* prefix : {"unet.", ""}) {
        add_stem(prefix + module, target);
        if (const std::string processor = processor_stem(module); !processor.empty())
          add_stem(prefix + processor, target);
      }
      if (original) {
        const std::string ldm_module = original->substr(0, original->rfind('.'));
        add_stem("lora_unet_" + with_underscores(ldm_module), target);
        add_stem("diffusion_model." + ldm_module, target);
      }
      continue;
    }
    const bool first = component == Component::kTextEncoder;
    constexpr std::string_view kModel = "text_model.";
    const std::vector<std::string> kohya =
        first ? std::vector<std::string>{"lora_te_", "lora_te1_", "lycoris_te_"}
              : std::vector<std::string>{"lora_te2_"};
    for (const std::string& prefix : kohya) add_stem(prefix + with_underscores(module), target);
    const std::string folder = std::string(component_name(component)) + ".";
    add_stem(folder + module, target);
    if (module.starts_with(kModel)) add_stem(folder + module.substr(kModel.size()), target);
  }
}

const AdapterTargets::Target* AdapterTargets::find(std::string_view stem, std::string_view leaf) const {
  const auto found = targets_.find(concat(stem, ".", leaf));
  return found == targets_.end() ? nullptr : &found->second;
}

}  // namespace rocm_sd
