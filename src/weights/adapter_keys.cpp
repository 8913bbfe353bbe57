#include "weights/adapter_keys.hpp"

#include <algorithm>

namespace rocm_sd {
namespace {

struct Suffix {
  std::string_view text, role;
};

// Longer ones first where one ends in another.
constexpr Suffix kSuffixes[] = {
    {".lora_linear_layer.down.weight", "down"},
    {".lora_linear_layer.up.weight", "up"},
    {".lora_magnitude_vector.weight", "magnitude"},
    {".lora_magnitude_vector", "magnitude"},
    {".lora_down.weight", "down"},
    {".lora_up.weight", "up"},
    {".lora_mid.weight", "mid"},
    {".lora_A.weight", "down"},
    {".lora_B.weight", "up"},
    {".lora.down.weight", "down"},
    {".lora.up.weight", "up"},
    {"_lora.down.weight", "down"},
    {"_lora.up.weight", "up"},
    {".alpha", "alpha"},
    {".dora_scale", "magnitude"},
    {".hada_w1_a", "hada_w1_a"},
    {".hada_w1_b", "hada_w1_b"},
    {".hada_w2_a", "hada_w2_a"},
    {".hada_w2_b", "hada_w2_b"},
    {".hada_t1", "hada_t1"},
    {".hada_t2", "hada_t2"},
    {".lokr_w1", "lokr_w1"},
    {".lokr_w1_a", "lokr_w1_a"},
    {".lokr_w1_b", "lokr_w1_b"},
    {".lokr_w2", "lokr_w2"},
    {".lokr_w2_a", "lokr_w2_a"},
    {".lokr_w2_b", "lokr_w2_b"},
    {".lokr_t2", "lokr_t2"},
    {".diff", "diff"},
    {".diff_b", "diff_b"},
    {".w_norm", "diff"},
    {".b_norm", "diff_b"},
    {".on_input", "on_input"},
};

// PEFT keeps an adapter's name between "lora_A" and "weight" where it saves a state as it is.
AdapterKey named_peft_key(std::string_view key) {
  for (const auto& [marker, role] : {Suffix{".lora_A.", "down"}, Suffix{".lora_B.", "up"}}) {
    const size_t at = key.rfind(marker);
    if (at == key.npos) continue;
    const std::string_view rest = key.substr(at + marker.size());
    const size_t dot = rest.find('.');
    if (dot != rest.npos && rest.substr(dot) == ".weight") return {key.substr(0, at), std::string(role)};
  }
  return {key, ""};
}

}  // namespace

AdapterKey parse_adapter_key(std::string_view key) {
  constexpr std::string_view kPeft = "base_model.model.";
  if (key.starts_with(kPeft)) key.remove_prefix(kPeft.size());
  for (const Suffix& suffix : kSuffixes)
    if (key.ends_with(suffix.text))
      return {key.substr(0, key.size() - suffix.text.size()), std::string(suffix.role)};
  return named_peft_key(key);
}

std::string with_underscores(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '.', '_');
  return out;
}

std::string processor_stem(std::string_view name) {
  const size_t at = name.rfind(".to_");
  if (at == name.npos) return "";
  std::string out = std::string(name.substr(0, at)) + ".processor" + std::string(name.substr(at));
  if (out.ends_with(".to_out.0")) out.resize(out.size() - 2);
  return out;
}

}  // namespace rocm_sd
