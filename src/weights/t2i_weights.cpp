#include "weights/t2i_weights.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/format.hpp"
#include "base/text.hpp"
#include "weights/name_extent.hpp"
#include "weights/name_map.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "adapter.";
constexpr size_t kNamed = 8;

std::string_view without_prefix(std::string_view name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

bool holds(const TensorSet& tensors, std::string_view name) {
  return std::ranges::any_of(tensors.tensors(),
                             [&](const TensorRef& ref) { return without_prefix(ref.entry->name) == name; });
}

// TencentARC's full adapters count residual blocks through all levels, two each, and name an inner
// convolution of the light ones "body".
std::optional<std::string> canonical(std::string_view name, bool counts_through) {
  const auto level = numbered(name, "body.");
  if (!level) return name.starts_with("conv_in.") ? concat(kPrefix, name) : std::optional<std::string>();
  constexpr int kOfLevel = 2;
  const std::string_view rest = level->rest;
  const bool block = rest.starts_with("block1.") || rest.starts_with("block2.");
  if (counts_through && block)
    return fmt::format("{}body.{}.resnets.{}.{}", kPrefix, level->number / kOfLevel, level->number % kOfLevel,
                       rest);
  if (counts_through && rest.starts_with("in_conv."))
    return fmt::format("{}body.{}.{}", kPrefix, level->number / kOfLevel, rest);
  if (counts_through) return std::nullopt;
  if (const auto inner = numbered(rest, "body."))
    return fmt::format("{}body.{}.resnets.{}.{}", kPrefix, level->number, inner->number, inner->rest);
  for (const std::string_view part : {"resnets.", "in_conv.", "out_conv."})
    if (rest.starts_with(part)) return fmt::format("{}body.{}.{}", kPrefix, level->number, rest);
  return std::nullopt;
}

WeightStore store_of(const TensorSet& tensors) {
  const std::string what = printable_path(tensors.path());
  const bool counts_through = holds(tensors, "body.0.block1.weight");
  std::map<std::string, StoredTensor, std::less<>> weights;
  std::vector<std::string> unknown;
  for (const TensorRef& ref : tensors.tensors()) {
    const auto name = canonical(without_prefix(ref.entry->name), counts_through);
    if (!name) {
      unknown.push_back(ref.entry->name);
      continue;
    }
    const bool is_new = weights.emplace(*name, StoredTensor{.ref = ref, .shape = ref.entry->shape}).second;
    require<FormatError>(is_new, what, ": two tensors claim to be ", *name);
  }
  require<FormatError>(unknown.empty(), what, ": ", unknown.size(),
                       unknown.size() == 1 ? " tensor has" : " tensors have",
                       " no place in a T2I-Adapter: ", listed_names(unknown, kNamed));
  return {Component::kUnet, concat("t2i-adapter of ", what), tensors.files(), std::move(weights)};
}

json derived(const WeightStore& store) {
  const auto width = [&](const std::string& layer, int axis) {
    return dim_of(store, {concat(kPrefix, layer, ".weight")}, axis, 0);
  };
  const bool light = !has_any(store, "adapter.conv_in.");
  const int levels = std::min(extent(store, "adapter.body."), 64);
  const int64_t squares = width(light ? "body.0.in_conv" : "conv_in", 1);
  constexpr int64_t kSmall = 64, kLarge = 256;  // of one channel, 8 x 8 and 16 x 16
  const bool large = squares == kLarge || squares == 3 * kLarge;
  require<FormatError>(large || squares == kSmall || squares == 3 * kSmall, store.title(),
                       ": expected a first convolution of 64, 192, 256 or 768 channels, got ", squares);
  std::vector<int64_t> channels;
  for (int i = 0; i < levels - (light ? 1 : 0); ++i)
    channels.push_back(light ? width(fmt::format("body.{}.out_conv", i), 0)
                             : width(fmt::format("body.{}.resnets.0.block1", i), 0));
  for (const int64_t n : channels)
    require<FormatError>(n > 0, store.title(), ": tensors of a level below the last are missing");
  return {{"_class_name", "T2IAdapter"},
          {"adapter_type", light   ? "light_adapter"
                           : large ? "full_adapter_xl"
                                   : "full_adapter"},
          {"in_channels", squares % 3 == 0 ? 3 : 1},
          {"channels", channels},
          {"num_res_blocks", std::min(extent(store, "adapter.body.0.resnets."), 64)},
          {"downscale_factor", large ? 16 : 8}};
}

}  // namespace

bool holds_t2i_adapter(const TensorSet& tensors) {
  return holds(tensors, "body.0.resnets.0.block1.weight") || holds(tensors, "body.0.block1.weight") ||
         holds(tensors, "body.0.body.0.block1.weight");
}

T2iWeights t2i_of(const TensorSet& tensors, std::shared_ptr<const json> config) {
  WeightStore store = store_of(tensors);
  if (!config) config = std::make_shared<json>(derived(store));
  return {std::move(store), std::move(config)};
}

}  // namespace rocm_sd
