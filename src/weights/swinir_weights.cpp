#include "weights/swinir_weights.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <optional>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "weights/take_name.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kNamed = 8;
constexpr int64_t kMaxOutputs = 3 * 64;  // of the last layer: squares of 8 x 8 pixels
// Of the training images (DIV2K), 0..1. Networks against artifacts of JPEG, whose windows are the blocks of
// JPEG less one, read 0..255.
constexpr float kMean[3] = {0.4488f, 0.4371f, 0.4040f};
constexpr int64_t kJpegWindow = 7;
constexpr float kJpegRange = 255.0f;
constexpr std::string_view kFirstBlock = "layers.0.residual_group.blocks.0.";
constexpr std::string_view kFirstTable = "layers.0.blocks.0.attn.positions.weight";

std::string_view own_name(std::string_view name) {
  take(name, "module.");  // DataParallel's
  return name;
}

bool follows_from_sizes(std::string_view name) {
  return name.starts_with("layers.") &&
         (name.ends_with(".attn_mask") || name.ends_with(".relative_position_index"));
}

// "layers.1.residual_group.blocks.3.attn.qkv.weight" -> "layers.1.blocks.3.attn.qkv.weight"; empty for
// others.
std::string layer_name(std::string_view rest) {
  const std::optional<int> layer = take_number(rest);
  if (!layer || !take(rest, ".")) return {};
  if (rest.starts_with("conv.")) return concat("layers.", *layer, ".", rest);
  if (!take(rest, "residual_group.blocks.")) return {};
  const std::optional<int> block = take_number(rest);
  if (!block || !take(rest, ".")) return {};
  if (rest == "attn.relative_position_bias_table") rest = "attn.positions.weight";
  return concat("layers.", *layer, ".blocks.", *block, ".", rest);
}

std::string canonical_name(std::string_view name) {
  std::string_view rest = name;
  if (take(rest, "layers.")) return layer_name(rest);
  for (const std::string_view known :
       {"conv_first.", "patch_embed.norm.", "norm.", "conv_after_body.", "conv_before_upsample.0.",
        "upsample.", "conv_up", "conv_hr.", "conv_last."})
    if (name.starts_with(known)) return std::string(name);
  return {};
}

// What is made while the file is read, with its values.
struct Made {
  std::list<std::vector<float>> values;
  std::vector<MemoryTensor> tensors;
  std::shared_ptr<const SafetensorsFile> file;

  void add(std::string name, const Shape& shape, std::vector<float> of) {
    tensors.push_back({std::move(name), DType::kF32, shape, values.emplace_back(std::move(of)).data()});
  }
};

using Weights = std::map<std::string, StoredTensor, std::less<>>;

Weights named_tensors(const TensorSet& tensors, const std::string& what) {
  Weights weights;
  std::vector<std::string> unknown;
  for (const TensorRef& ref : tensors.tensors()) {
    const std::string_view own = own_name(ref.entry->name);
    if (follows_from_sizes(own)) continue;
    const std::string name = canonical_name(own);
    if (name.empty()) {
      unknown.push_back(ref.entry->name);
      continue;
    }
    const bool is_new = weights.emplace(name, StoredTensor{.ref = ref, .shape = ref.entry->shape}).second;
    require<FormatError>(is_new, what, ": two tensors claim to be ", printable(name));
  }
  require<FormatError>(unknown.empty(), what, ": ", unknown.size(),
                       unknown.size() == 1 ? " tensor has" : " tensors have",
                       " no place in a SwinIR: ", listed_names(unknown, kNamed));
  return weights;
}

// The last layer's bias with what the network reads undone: to the range of the image, and the mean added
// unless the result is itself added to the image.
std::vector<float> last_bias(const WeightStore& store, const std::string& name, float range, bool adds_mean) {
  const Shape& shape = store.shape(name);
  require<FormatError>(shape.rank() == 1 && shape[0] > 0 && shape[0] <= kMaxOutputs && shape[0] % 3 == 0,
                       store.title(), ": ", name, ": expected 3 times a square of up to 64 values, got ",
                       shape);
  std::vector<float> values(static_cast<size_t>(shape[0]));
  store.read(name, shape, DType::kF32, values.data());
  const size_t square = values.size() / 3;
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = values[i] / range + (adds_mean ? kMean[i / square] : 0.0f);
  return values;
}

}  // namespace

int64_t window_side(int64_t table_rows) {
  const auto root = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(table_rows))));
  return root * root == table_rows && root % 2 == 1 ? (root + 1) / 2 : 0;
}

bool is_swinir(const TensorSet& tensors) {
  return std::ranges::any_of(tensors.tensors(), [](const TensorRef& ref) {
    return own_name(ref.entry->name).starts_with(kFirstBlock);
  });
}

WeightStore swinir_of(const TensorSet& tensors) {
  const std::string what = printable_path(tensors.path()), title = concat("upscaler of ", what);
  Weights weights = named_tensors(tensors, what);
  const std::string last = weights.contains("conv_last.weight") ? "conv_last" : "upsample.0";
  const std::string bias = concat(last, ".bias");
  const WeightStore store(Component::kVae, title, tensors.files(), weights);
  const auto table = weights.find(kFirstTable);
  require<FormatError>(
      table != weights.end() && table->second.shape.rank() == 2, what,
      ": expected layers.0.residual_group.blocks.0.attn.relative_position_bias_table [N,heads]");
  require<FormatError>(weights.contains(bias), what, ": ", bias, " is missing");
  const float range = window_side(table->second.shape[0]) == kJpegWindow ? kJpegRange : 1.0f;

  auto made = std::make_shared<Made>();
  std::vector<float> scale(9, 0.0f), shift(3);
  for (size_t c = 0; c < 3; ++c) {
    scale[4 * c] = range;
    shift[c] = -kMean[c] * range;
  }
  made->add("input.weight", {3, 3, 1, 1}, std::move(scale));
  made->add("input.bias", {3}, std::move(shift));
  const bool enlarges = last == "upsample.0" || weights.contains("conv_before_upsample.0.weight");
  std::vector<float> values = last_bias(store, bias, range, enlarges);
  const auto outputs = static_cast<int64_t>(values.size());
  made->add(bias, {outputs}, std::move(values));
  if (const auto weight = weights.find(concat(last, ".weight")); weight != weights.end())
    weight->second.scale /= range;
  made->file = SafetensorsFile::of_memory(what, made->tensors);

  const std::shared_ptr<const SafetensorsFile> file(made, made->file.get());  // keeps the values, too
  for (const TensorEntry& entry : file->entries())
    weights.insert_or_assign(entry.name, StoredTensor{.ref = {file.get(), &entry}, .shape = entry.shape});
  auto files = tensors.files();
  files.push_back(file);
  return {Component::kVae, title, std::move(files), std::move(weights)};
}

}  // namespace rocm_sd
