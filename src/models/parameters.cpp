#include "models/parameters.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/onednn.hpp"
#include "models/bytes_to_load.hpp"

namespace rocm_sd {
namespace {

// For tests: bf16 is computed as wide models compute it, whatever the model and the CPU.
bool always_multiplies_bf16() {
  const char* asked = std::getenv("ROCM_SD_BF16");
  return asked && std::string_view(asked) == "products";
}

// The rows of a layer's cut, of its bias.
CutPart cut_of_bias(const CutPart& cut) {
  return cut ? std::make_shared<Cut>(Cut{{cut->whole[0]}, cut->rows, {0, 1}}) : nullptr;
}

// The layers that have a matrix: which of them are the last does not depend on what is left out.
class LayerPathLister final : public Visitor {
 public:
  LayerPaths paths;
  std::vector<LayerListing> layers;

 protected:
  bool sees_all() const override { return true; }
  void slot(const ParameterSlot& slot) override {
    if (slot.layer.empty()) return;
    paths.add(slot.layer);
    layers.push_back({slot.layer, slot.parts, {}});
  }
};

class ResidentBytes final : public Visitor {
 public:
  uint64_t bytes = 0;

 protected:
  void slot(const ParameterSlot& slot) override { bytes += slot.resident(); }
};

class Lister final : public Visitor {
 public:
  std::vector<ParameterSlot::Part> parts;

 protected:
  void slot(const ParameterSlot& slot) override {
    parts.insert(parts.end(), slot.parts.begin(), slot.parts.end());
  }
};

template <class Layer>
ParameterSlot weight_slot(Layer& layer, const std::string& path, const Shape& shape) {
  return {{{path + ".weight", shape}},
          shape,
          true,
          path,
          false,
          [&layer](StoredWeight w) { layer.weight = Weight(std::move(w)); },
          [&layer] { return layer.weight.stored(); },
          [&layer] { return layer.weight ? layer.weight.stored_bytes() : 0; },
          &layer.weight,
          &layer.low_rank};
}

ParameterSlot tensor_slot(Tensor& tensor, std::string name, const Shape& shape, bool matrix) {
  return {{{std::move(name), shape}},
          shape,
          matrix,
          "",
          false,
          [&tensor](StoredWeight w) { tensor = std::move(w.values); },
          [&tensor] { return StoredWeight(tensor); },
          [&tensor] { return tensor && !tensor.storage()->mapped() ? tensor.bytes() : 0; }};
}

template <class Layer>
ParameterSlot bias_slot(Layer& layer, std::string name, int64_t count) {
  const Shape shape{count};
  return {{{std::move(name), shape}},
          shape,
          false,
          "",
          false,
          [&layer](StoredWeight w) { layer.bias = std::move(w.values); },
          [&layer] { return StoredWeight(*layer.bias); },
          [&layer] { return layer.bias && *layer.bias ? layer.bias->bytes() : 0; }};
}

}  // namespace

bool ParameterSlot::is_cut() const {
  return std::ranges::any_of(parts, [](const Part& part) { return part.cut != nullptr; });
}

size_t Visitor::enter(std::string_view name) {
  const size_t length = prefix_.size();
  if (!name.empty()) prefix_.append(name).append(".");
  return length;
}

std::string Visitor::full(std::string_view name) const { return concat(prefix_, name); }

std::string Visitor::full(std::string_view name, std::string_view leaf) const {
  return name.empty() ? concat(prefix_, leaf) : concat(prefix_, name, ".", leaf);
}

void Visitor::offer(const ParameterSlot& of) {
  if (!only_ || sees_all() || (*only_)(of)) slot(of);
}

void Visitor::operator()(std::string_view name, Linear& layer) {
  ParameterSlot weight = weight_slot(layer, full(name), {layer.out, layer.in});
  weight.parts[0].cut = layer.cut;
  offer(weight);
  if (!layer.biased) return;
  ParameterSlot bias = bias_slot(layer, full(name, "bias"), layer.out);
  bias.parts[0].cut = cut_of_bias(layer.cut);
  offer(bias);
}

void Visitor::operator()(std::string_view name, StackedLinear& layer) {
  ParameterSlot weight = weight_slot(layer, full(name, layer.name), {layer.rows(), layer.in});
  ParameterSlot bias = bias_slot(layer, "", layer.rows());
  weight.parts.clear();
  bias.parts.clear();
  for (const StackedLinear::Part& part : layer.parts) {
    const std::string prefix = full(name, part.name);
    weight.parts.push_back({prefix + ".weight", {part.rows, layer.in}, part.cut});
    bias.parts.push_back({prefix + ".bias", {part.rows}, cut_of_bias(part.cut)});
  }
  offer(weight);
  if (layer.biased) offer(bias);
}

void Visitor::operator()(std::string_view name, Conv& layer) {
  offer(weight_slot(layer, full(name), {layer.out, layer.in, layer.kernel, layer.kernel}));
  if (layer.biased) offer(bias_slot(layer, full(name, "bias"), layer.out));
}

void Visitor::operator()(std::string_view name, Norm& layer) {
  offer(tensor_slot(layer.gain, full(name, "weight"), {layer.channels}, false));
  offer(tensor_slot(layer.bias, full(name, "bias"), {layer.channels}, false));
}

void Visitor::operator()(std::string_view name, Embedding& layer) {
  ParameterSlot table = tensor_slot(layer.table, full(name, "weight"), {layer.rows, layer.channels}, true);
  table.rows_read = true;
  offer(table);
}

std::string WeightFormat::name() const {
  if (!*this) return "";
  return concat(eight_bit == DType::kI8 ? "int8" : "fp8", products ? "-products" : "");
}

bool is_narrow(int64_t channels) {
  constexpr int64_t kWide = 256;
  return channels < kWide && !always_multiplies_bf16();
}

DType product_dtype(const Device& device, DType dtype, int64_t channels) {
  if (dtype != DType::kBF16 || device.kind() != DeviceKind::kHost || always_multiplies_bf16()) return dtype;
  return is_narrow(channels) || !onednn::bf16_pays() ? DType::kF32 : dtype;
}

bool lies_in_mapped_memory(const ParameterSlot& slot) {
  constexpr int64_t kLarge = 1 << 20;  // elements
  return slot.rows_read && slot.shape.numel() >= kLarge;
}

Tensor make_parameter(Device& device, const ParameterSlot& slot, DType dtype) {
  return lies_in_mapped_memory(slot) ? make_mapped_tensor(device, slot.shape, dtype)
                                     : make_tensor(device, slot.shape, dtype);
}

void ParameterSource::read_part(const std::string& name, const Shape& shape, int64_t begin, int64_t count,
                                DType dtype, void* dst) const {
  const size_t size = dtype_size(dtype);
  std::vector<char> whole(static_cast<size_t>(shape.numel()) * size);
  read(name, shape, dtype, whole.data());
  std::copy_n(whole.data() + static_cast<size_t>(begin) * size, static_cast<size_t>(count) * size,
              static_cast<char*>(dst));
}

Tensor ParameterSource::ready(const ParameterSlot&, DType, Device&) const { return {}; }

uint64_t resident_bytes(const VisitModel& visit) {
  ResidentBytes resident;
  visit(resident);
  return resident.bytes;
}

std::vector<ParameterSlot::Part> list_parameters(const VisitModel& visit) {
  Lister lister;
  visit(lister);
  return std::move(lister.parts);
}

std::vector<LayerListing> list_precisions(const VisitModel& visit, std::span<const PrecisionRow> precisions) {
  LayerPathLister lister;
  visit(lister);
  const PrecisionRules rules(precisions, std::move(lister.paths));
  for (LayerListing& layer : lister.layers) layer.precision = rules.of(layer.layer);
  return std::move(lister.layers);
}

int64_t count_parameters(const VisitModel& visit) {
  int64_t sum = 0;
  for (const ParameterSlot::Part& part : list_parameters(visit)) sum += part.shape.numel();
  return sum;
}

}  // namespace rocm_sd
