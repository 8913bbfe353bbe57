#include "weights/component_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "weights/ldm_export.hpp"
#include "weights/name_map.hpp"

namespace rocm_sd {
namespace {

bool is_fp8(DType type) { return type == DType::kF8E4M3 || type == DType::kF8E5M2; }

DType written_type(const StoredTensor& weight, std::optional<DType> dtype) {
  if (!is_float(weight.dtype())) return weight.dtype();
  if (dtype) return *dtype;
  const bool packed = weight.ref.entry->blocks != nullptr || (weight.scale != 1.0f && is_fp8(weight.dtype()));
  return packed ? DType::kF16 : weight.dtype();
}

bool is_vae_attention_matrix(std::string_view canonical) {
  if (canonical.find(".mid_block.attentions.") == canonical.npos || !canonical.ends_with(".weight"))
    return false;
  return canonical.find(".to_") != canonical.npos;
}

// Rank 2 for Diffusers, rank 4 for LDM.
Shape matrix_shape(const Shape& shape, bool convolution) {
  if (shape.rank() < 2) return shape;
  return convolution ? Shape{shape[0], shape[1], 1, 1} : Shape{shape[0], shape[1]};
}

// What is written of a component, and how.
struct Written {
  const WeightStore& store;
  std::optional<DType> dtype;
  const ChangedWeights* changed = nullptr;

  DType type(const std::string& name) const { return written_type(store.at(name), dtype); }
  void read(const std::string& name, int64_t begin, int64_t count, DType type, void* dst) const {
    const StoredTensor& weight = store.at(name);
    if (changed && changed->changes(store.component(), name))
      changed->read(store.component(), name, weight.shape, begin, count, type, dst);
    else
      store.read_range(weight, begin, count, type, dst);
  }
};

TensorToWrite tensor_to_write(const Written& from, const std::string& canonical, std::string name,
                              const Shape& shape) {
  const DType type = from.type(canonical);
  const auto size = static_cast<int64_t>(dtype_size(type));
  return {std::move(name), type, shape,
          [from, canonical, type, size](uint64_t offset, uint64_t bytes, void* dst) {
            from.read(canonical, static_cast<int64_t>(offset) / size, static_cast<int64_t>(bytes) / size,
                      type, dst);
          }};
}

// Several canonical tensors one below the other; `transposed` swaps the axes of a single matrix. Buffered
// whole: such tensors are a text encoder's, a few MB each.
TensorToWrite joined_tensor(const Written& from, const OpenClipTensor& joined) {
  const WeightStore& store = from.store;
  const StoredTensor& first = store.at(joined.sources.front());
  const DType type = from.type(joined.sources.front());
  Shape shape = first.shape;
  for (const std::string& source : joined.sources)
    require(store.shape(source) == first.shape, source, ": expected ", first.shape, ", ", store.title(),
            " has ", store.shape(source));
  shape[0] *= static_cast<int64_t>(joined.sources.size());
  if (joined.transposed) shape = {shape[1], shape[0]};
  auto fill = [from, joined, type](uint64_t offset, uint64_t bytes, void* dst) {
    const StoredTensor& part = from.store.at(joined.sources.front());
    const size_t size = dtype_size(type), part_bytes = static_cast<size_t>(part.shape.numel()) * size;
    std::vector<char> all(part_bytes * joined.sources.size());
    for (size_t i = 0; i < joined.sources.size(); ++i)
      from.read(joined.sources[i], 0, part.shape.numel(), type, all.data() + i * part_bytes);
    if (!joined.transposed) {
      std::memcpy(dst, all.data() + offset, bytes);
      return;
    }
    const int64_t rows = part.shape[0], cols = part.shape[1];
    for (uint64_t at = offset; at < offset + bytes; at += size) {
      const auto i = static_cast<int64_t>(at / size);  // of the transposed [cols,rows]
      std::memcpy(static_cast<char*>(dst) + (at - offset), all.data() + ((i % rows) * cols + i / rows) * size,
                  size);
    }
  };
  return {joined.name, type, shape, std::move(fill)};
}

std::string text_prefix(Component component, ModelKind kind) {
  if (component == Component::kTextEncoder)
    return kind == ModelKind::kSd1   ? "cond_stage_model.transformer."
           : kind == ModelKind::kSd2 ? "cond_stage_model.model."
                                     : "conditioner.embedders.0.transformer.";
  return kind == ModelKind::kSdxlRefiner ? "conditioner.embedders.0.model."
                                         : "conditioner.embedders.1.model.";
}

std::vector<TensorToWrite> ldm_text(const Written& from, const std::vector<std::string>& names,
                                    const std::string& prefix) {
  const WeightStore& store = from.store;
  std::vector<TensorToWrite> out;
  if (prefix.ends_with("transformer.")) {
    for (const std::string& name : names)
      out.push_back(tensor_to_write(from, name, prefix + name, store.shape(name)));
    return out;
  }
  size_t taken = 0;
  for (OpenClipTensor& tensor : open_clip_tensors(store)) {
    if (std::find(names.begin(), names.end(), tensor.sources.front()) == names.end()) continue;
    taken += tensor.sources.size();
    tensor.name = prefix + tensor.name;
    out.push_back(joined_tensor(from, tensor));
  }
  require<FormatError>(taken == names.size(), store.title(), ": ", names.size() - taken,
                       " tensors have no place in an OpenCLIP text encoder");
  return out;
}

}  // namespace

std::vector<std::string> written_names(const WeightStore& store, const nlohmann::json& config) {
  int layers = 10'000;
  if (const auto it = config.find("num_hidden_layers"); it != config.end() && it->is_number_unsigned())
    layers = static_cast<int>(std::min<uint64_t>(it->get<uint64_t>(), 10'000));
  std::vector<std::string> names;
  for (const auto& [name, weight] : store.weights()) {
    const auto layer = numbered(name, "text_model.encoder.layers.");
    if (layer && layer->number >= layers) continue;
    if (store.component() == Component::kTextEncoder && name == "text_projection.weight") continue;
    names.push_back(name);
  }
  return names;
}

std::vector<TensorToWrite> diffusers_tensors(const WeightStore& store, const nlohmann::json& config,
                                             std::optional<DType> dtype, const ChangedWeights* changed) {
  const Written from{store, dtype, changed};
  std::vector<TensorToWrite> out;
  for (const std::string& name : written_names(store, config)) {
    const Shape& shape = store.shape(name);
    const bool matrix = store.component() == Component::kVae && is_vae_attention_matrix(name);
    out.push_back(tensor_to_write(from, name, name, matrix ? matrix_shape(shape, false) : shape));
  }
  return out;
}

std::vector<TensorToWrite> ldm_tensors(const WeightStore& store, const nlohmann::json& config, ModelKind kind,
                                       std::optional<DType> dtype, const ChangedWeights* changed) {
  const Written from{store, dtype, changed};
  const std::vector<std::string> names = written_names(store, config);
  const Component component = store.component();
  if (component == Component::kTextEncoder || component == Component::kTextEncoder2)
    return ldm_text(from, names, text_prefix(component, kind));
  const LdmUnetExport unet(store);
  int levels = 0;
  while (store.has(fmt::format("decoder.up_blocks.{}.resnets.0.conv1.weight", levels))) ++levels;
  std::vector<TensorToWrite> out;
  for (const std::string& name : names) {
    const Shape& shape = store.shape(name);
    const auto ldm = component == Component::kUnet ? unet.ldm_name(name) : ldm_vae_name(name, levels);
    require<FormatError>(ldm.has_value(), store.title(), ": tensor \"", printable(name),
                         "\" has no place in a single file of this kind");
    const bool matrix = component == Component::kVae && is_vae_attention_matrix(name);
    const std::string prefix =
        component == Component::kUnet ? "model.diffusion_model." : "first_stage_model.";
    out.push_back(tensor_to_write(from, name, prefix + *ldm, matrix ? matrix_shape(shape, true) : shape));
  }
  return out;
}

}  // namespace rocm_sd
