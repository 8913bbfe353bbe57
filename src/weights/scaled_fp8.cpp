#include "weights/scaled_fp8.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;

constexpr std::string_view kScale[] = {".scale_weight", ".weight_scale"};
constexpr std::string_view kInputScale[] = {".scale_input", ".input_scale"};
constexpr std::string_view kFormat = ".comfy_quant", kMarker = "scaled_fp8",
                           kMetadata = "_quantization_metadata";
// Parts of formats that hold more than one factor for a tensor (nvfp4, SmoothQuant's).
constexpr std::string_view kForeign[] = {".weight_scale_2", ".pre_quant_scale"};
constexpr uint64_t kMaxFormatBytes = 64 << 10;

bool ends_with_any(std::string_view name, std::span<const std::string_view> suffixes) {
  for (const std::string_view suffix : suffixes)
    if (name.ends_with(suffix)) return true;
  return false;
}

bool is_marker(std::string_view name) {
  return name.ends_with(kMarker) &&
         (name.size() == kMarker.size() || name[name.size() - kMarker.size() - 1] == '.');
}

std::string layer_of(std::string_view name) { return std::string(name.substr(0, name.rfind('.'))); }

std::string title_of(const TensorRef& ref) {
  return concat(printable_path(ref.file->path()), ": \"", printable(ref.entry->name), "\"");
}

std::optional<DType> type_of_format(std::string_view format) {
  if (format == "float8_e4m3fn") return DType::kF8E4M3;
  if (format == "float8_e5m2") return DType::kF8E5M2;
  return std::nullopt;
}

// The "format" of one layer's description.
std::string format_field(const json& layer, const std::string& title) {
  require<FormatError>(layer.is_object(), title, ": expected a JSON object with \"format\"");
  const auto format = layer.find("format");
  require<FormatError>(format != layer.end() && format->is_string(), title,
                       ": expected \"format\" with a text");
  return *format;
}

float read_scale(const TensorRef& ref) {
  const std::string title = concat(title_of(ref), " (a factor of fp8 weights)");
  require<FormatError>(ref.entry->numel() == 1 && is_float(ref.entry->dtype), title,
                       ": expected one number, found ", ref.entry->dtype, " ", ref.entry->shape,
                       " (factors of rows or blocks are not read)");
  char stored[8];
  float scale = 0;
  ref.file->read(*ref.entry, 0, ref.entry->bytes, stored);
  convert_elements(stored, ref.entry->dtype, &scale, DType::kF32, 1);
  require<FormatError>(std::isfinite(scale) && scale > 0, title, ": ", scale, " is no usable factor");
  return scale;
}

std::string read_format(const TensorRef& ref) {
  const std::string title = title_of(ref);
  const TensorEntry& entry = *ref.entry;
  require<FormatError>(entry.dtype == DType::kU8 && entry.shape.rank() == 1 && entry.bytes > 0 &&
                           entry.bytes <= kMaxFormatBytes,
                       title, ": expected u8 [1..", kMaxFormatBytes, "], the bytes of a JSON object, found ",
                       entry.dtype, " ", entry.shape);
  std::string text(entry.bytes, '\0');
  ref.file->read(entry, 0, entry.bytes, text.data());
  return format_field(parse_json(text, {.max_depth = 4, .max_values = 1000}, title), title);
}

}  // namespace

ScaledFp8::ScaledFp8(std::span<const NamedTensor> tensors) {
  if (tensors.empty()) return;
  prefix_ = tensors.front().ref.entry->name.size() - tensors.front().name.size();
  std::set<const SafetensorsFile*> seen;
  for (const NamedTensor& tensor : tensors) {
    const SafetensorsFile& file = *tensor.ref.file;
    if (!seen.insert(&file).second) continue;
    const auto text = file.metadata().find(std::string(kMetadata));
    if (text == file.metadata().end()) continue;
    const std::string title = concat(printable_path(file.path()), ": metadata ", kMetadata);
    const json value = parse_json(text->second, {}, title);
    const auto layers = value.is_object() ? value.find("layers") : value.end();
    require<FormatError>(value.is_object() && layers != value.end() && layers->is_object(), title,
                         ": expected a JSON object with an object \"layers\"");
    for (const auto& [layer, description] : layers->items())
      metadata_.try_emplace(
          layer, Said{format_field(description, concat(title, ": layer \"", printable(layer), "\"")), title});
  }
}

bool ScaledFp8::take(const NamedTensor& tensor, std::vector<std::string>& harmless) {
  const std::string& name = tensor.ref.entry->name;
  if (ends_with_any(name, kScale)) {
    const auto [it, is_new] = scales_.emplace(layer_of(name), tensor.ref);
    require<FormatError>(is_new, title_of(tensor.ref), ": the layer has a factor already, \"",
                         printable(it->second.entry->name), "\"");
    return true;
  }
  if (name.ends_with(kFormat)) {
    formats_.emplace(layer_of(name), Said{read_format(tensor.ref), title_of(tensor.ref)});
  } else if (is_marker(name)) {
    require<FormatError>(is_float(tensor.ref.entry->dtype) && tensor.ref.entry->numel() <= 2,
                         title_of(tensor.ref),
                         ": expected at most two numbers, the mark of scaled fp8, found ",
                         tensor.ref.entry->dtype, " ", tensor.ref.entry->shape);
  } else if (!ends_with_any(name, kInputScale)) {
    require<FormatError>(
        !ends_with_any(name, kForeign), title_of(tensor.ref),
        ": belongs to a quantisation that is not read; of ComfyUI's formats float8_e4m3fn and "
        "float8_e5m2 with one factor a tensor are");
    return false;
  }
  harmless.push_back(name);
  return true;
}

const ScaledFp8::Said* ScaledFp8::format_of(const std::string& layer) const {
  if (const auto it = formats_.find(layer); it != formats_.end()) return &it->second;
  if (const auto it = metadata_.find(layer); it != metadata_.end()) return &it->second;
  const auto it =
      layer.size() > prefix_ ? metadata_.find(std::string_view(layer).substr(prefix_)) : metadata_.end();
  return it == metadata_.end() ? nullptr : &it->second;
}

void ScaledFp8::attach(WeightMap& weights, std::vector<std::string>& unexpected) const {
  std::set<std::string> used;
  for (auto& [name, weight] : weights) {
    if (!weight.file_name().ends_with(".weight")) continue;
    const std::string layer = layer_of(weight.file_name());
    const auto scale = scales_.find(layer);
    const DType type = weight.dtype();
    if (const Said* said = format_of(layer)) {
      const std::optional<DType> wanted = type_of_format(said->format);
      require<FormatError>(wanted.has_value(), said->where, ": the format \"", printable(said->format, 40),
                           "\" of \"", printable(weight.file_name()),
                           "\" is not read; of ComfyUI's formats float8_e4m3fn and float8_e5m2 are");
      require<FormatError>(type == *wanted, said->where, ": says ", said->format, ", but \"",
                           printable(weight.file_name()), "\" is ", type);
      require<FormatError>(scale != scales_.end(), said->where, ": says ", said->format, ", but \"",
                           printable(layer), ".weight_scale\" is missing");
    }
    if (scale == scales_.end()) continue;
    require<FormatError>(is_float(type), title_of(weight.ref), ": has a factor of fp8 weights, \"",
                         printable(scale->second.entry->name), "\", but is ", type);
    weight.scale = read_scale(scale->second);
    used.insert(layer);
  }
  for (const auto& [layer, ref] : scales_)
    if (!used.contains(layer)) unexpected.push_back(ref.entry->name);
}

ScaledFp8Counts count_scaled_fp8(std::span<const TensorRef> tensors) {
  ScaledFp8Counts out;
  for (const TensorRef& ref : tensors) {
    const std::string_view name = ref.entry->name;
    out.layers += ends_with_any(name, kScale);
    out.input_scales += ends_with_any(name, kInputScale);
    out.formats += name.ends_with(kFormat);
  }
  return out;
}

}  // namespace rocm_sd
