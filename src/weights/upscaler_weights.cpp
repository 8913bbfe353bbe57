#include "weights/upscaler_weights.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "weights/span_weights.hpp"
#include "weights/swinir_weights.hpp"
#include "weights/take_name.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;
using Weights = std::map<std::string, StoredTensor, std::less<>>;
constexpr size_t kNamed = 8;
constexpr float kResidualScale =
    0.2f;  // of a dense block's result (Wang et al., "ESRGAN", 2018, section 3.1)

bool is_leaf(std::string_view name) { return name == "weight" || name == "bias"; }

// The numbers n of the oldest names model.n.weight, which have no others between "model." and the leaf.
std::vector<int> numbered_layers(const TensorSet& tensors) {
  std::set<int> numbers;
  for (const TensorRef& ref : tensors.tensors()) {
    std::string_view rest = ref.entry->name;
    if (!take(rest, "model.")) continue;
    const std::optional<int> number = take_number(rest);
    if (number && rest == ".weight") numbers.insert(*number);
  }
  return {numbers.begin(), numbers.end()};
}

// "3.RDB2.conv5.0.weight" or "3.rdb2.conv5.weight" -> "body.3.rdb2.conv5.weight"; else empty.
std::string block_name(std::string_view rest) {
  const std::optional<int> block = take_number(rest);
  if (!block || !(take(rest, ".RDB") || take(rest, ".rdb"))) return {};
  const std::optional<int> dense = take_number(rest);
  if (!dense || !take(rest, ".conv")) return {};
  const std::optional<int> conv = take_number(rest);
  if (!conv) return {};
  take(rest, ".0");  // the oldest names count the convolution's own sequence
  if (!take(rest, ".") || !is_leaf(rest)) return {};
  return concat("body.", *block, ".rdb", *dense, ".conv", *conv, ".", rest);
}

// model.0 is the first convolution, model.1 the trunk, the last two are conv_hr and conv_last, and those
// between double the size.
std::string oldest_name(std::string_view rest, const std::vector<int>& layers) {
  if (take(rest, "1.sub.")) {
    std::string name = block_name(rest);
    if (!name.empty()) return name;
    const std::optional<int> number = take_number(rest);
    return number && take(rest, ".") && is_leaf(rest) ? concat("conv_body.", rest) : "";
  }
  const std::optional<int> number = take_number(rest);
  if (!number || !take(rest, ".") || !is_leaf(rest)) return {};
  const auto place = std::ranges::find(layers, *number) - layers.begin(), count = std::ssize(layers);
  if (place == count || count < 3) return {};
  if (place == 0) return concat("conv_first.", rest);
  if (place == count - 1) return concat("conv_last.", rest);
  if (place == count - 2) return concat("conv_hr.", rest);
  return concat("conv_up", place, ".", rest);
}

// The name of an RRDBNet's tensor today; empty for others.
std::string rrdb_name(std::string_view name, const std::vector<int>& layers) {
  std::string_view rest = name;
  if (take(rest, "model.")) return oldest_name(rest, layers);
  if (take(rest, "body.") || take(rest, "RRDB_trunk.")) return block_name(rest);
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"trunk_conv.", "conv_body."},
                                 {"HRconv.", "conv_hr."},
                                 {"conv_first.", "conv_first."},
                                 {"conv_body.", "conv_body."},
                                 {"conv_hr.", "conv_hr."},
                                 {"conv_last.", "conv_last."}})
    if (take(rest, from)) return is_leaf(rest) ? concat(to, rest) : "";
  if (!take(rest, "upconv") && !take(rest, "conv_up")) return {};
  const std::optional<int> number = take_number(rest);
  return number && take(rest, ".") && is_leaf(rest) ? concat("conv_up", *number, ".", rest) : "";
}

// "body.7.weight": of an SRVGGNetCompact.
bool is_compact_name(std::string_view name) {
  return take(name, "body.") && take_number(name) && take(name, ".") && is_leaf(name);
}

std::string_view without_wrapper(std::string_view name) {
  take(name, "module.");  // DataParallel's
  return name;
}

}  // namespace

WeightStore upscaler_of(const TensorSet& tensors) {
  if (is_span(tensors)) return span_of(tensors);
  if (is_swinir(tensors)) return swinir_of(tensors);
  const std::string what = printable_path(tensors.path());
  const std::vector<int> layers = numbered_layers(tensors);
  const bool compact = std::ranges::all_of(tensors.tensors(), [](const TensorRef& ref) {
    return is_compact_name(without_wrapper(ref.entry->name));
  });
  Weights weights;
  std::vector<std::string> unknown;
  for (const TensorRef& ref : tensors.tensors()) {
    const std::string_view own = without_wrapper(ref.entry->name);
    const std::string name = compact ? std::string(own) : rrdb_name(own, layers);
    if (name.empty()) {
      unknown.push_back(ref.entry->name);
      continue;
    }
    StoredTensor tensor{.ref = ref, .shape = ref.entry->shape};
    if (compact && name.ends_with(".weight") && tensor.shape.rank() == 1) tensor.shape = {1, tensor.shape[0]};
    if (name.find(".conv5.") != name.npos) tensor.scale = kResidualScale;
    const bool is_new = weights.emplace(name, tensor).second;
    require<FormatError>(is_new, what, ": two tensors claim to be ", printable(name));
  }
  require<FormatError>(
      !weights.empty(), what,
      ": expected an upscaler: an RRDBNet (ESRGAN, Real-ESRGAN: conv_first, body.*, or older "
      "names), an SRVGGNetCompact (body.0, body.1, ...), a SPAN (conv_1, block_1.c1_r, ...) or a SwinIR "
      "(conv_first, layers.0.residual_group.*, ...); found ",
      listed_names(unknown, kNamed));
  require<FormatError>(unknown.empty(), what, ": ", unknown.size(),
                       unknown.size() == 1 ? " tensor has" : " tensors have",
                       " no place in an RRDBNet: ", listed_names(unknown, kNamed));
  return {Component::kVae, concat("upscaler of ", what), tensors.files(), std::move(weights)};
}

WeightStore open_upscaler(const fs::path& path, FileAccess access) {
  require<FileError>(path_exists(path), "upscaler: ", printable(path.native()), ": no such file");
  require<FormatError>(!is_folder_path(path), "upscaler: ", printable(path.native()),
                       ": expected a .safetensors or .pth file, got a folder");
  return upscaler_of(TensorSet::open(path, access));
}

}  // namespace rocm_sd
