#include "models/parameters.hpp"

namespace rocm_sd {
namespace {

// How many missing keys a message names; the rest are counted.
constexpr size_t kNamedMissing = 20;

class MissingKeys final : public Visitor {
 public:
  explicit MissingKeys(const ParameterSource& source) : source_(source) {}

  void check() const {
    if (missing_.empty()) return;
    std::string names;
    for (size_t i = 0; i < std::min(missing_.size(), kNamedMissing); ++i)
      names += concat(i ? ", " : "", missing_[i].name, " ", missing_[i].shape);
    if (missing_.size() > kNamedMissing) names += concat(" and ", missing_.size() - kNamedMissing, " more");
    throw FormatError(concat(source_.title(), ": ", missing_.size(), " of ", total_,
                             " expected tensors are missing: ", names));
  }

 protected:
  void slot(const ParameterSlot& slot) override {
    total_ += slot.parts.size();
    for (const ParameterSlot::Part& part : slot.parts)
      if (!source_.has(part.name)) missing_.push_back(part);
  }

 private:
  const ParameterSource& source_;
  std::vector<ParameterSlot::Part> missing_;
  size_t total_ = 0;
};

class Loader final : public Visitor {
 public:
  Loader(Device& device, const ParameterSource& source, DType compute)
      : device_(device), source_(source), compute_(compute) {}

 protected:
  void slot(const ParameterSlot& slot) override {
    const DType dtype = slot.matrix ? compute_ : DType::kF32;
    const Tensor tensor = make_tensor(device_, slot.shape, dtype);
    std::vector<char> staging;  // only where the device's memory is not the host's
    char* dst = static_cast<char*>(tensor.data());
    if (device_.kind() != DeviceKind::kHost) {
      staging.resize(tensor.bytes());
      dst = staging.data();
    }
    size_t offset = 0;
    for (const ParameterSlot::Part& part : slot.parts) {
      source_.read(part.name, part.shape, dtype, dst + offset);
      offset += static_cast<size_t>(part.shape.numel()) * dtype_size(dtype);
    }
    if (!staging.empty()) device_.copy_to_device(tensor.data(), staging.data(), staging.size());
    slot.store(tensor);
  }

 private:
  Device& device_;
  const ParameterSource& source_;
  DType compute_;
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
ParameterSlot weight_slot(Layer& layer, std::string name, const Shape& shape) {
  return {
      {{std::move(name), shape}}, shape, true, [&layer](Tensor t) { layer.weight = Weight(std::move(t)); }};
}

template <class Layer>
ParameterSlot bias_slot(Layer& layer, std::string name, int64_t count) {
  const Shape shape{count};
  return {{{std::move(name), shape}}, shape, false, [&layer](Tensor t) { layer.bias = std::move(t); }};
}

}  // namespace

size_t Visitor::enter(std::string_view name) {
  const size_t length = prefix_.size();
  if (!name.empty()) prefix_.append(name).append(".");
  return length;
}

std::string Visitor::full(std::string_view name, std::string_view leaf) const {
  return name.empty() ? concat(prefix_, leaf) : concat(prefix_, name, ".", leaf);
}

void Visitor::operator()(std::string_view name, Linear& layer) {
  slot(weight_slot(layer, full(name, "weight"), {layer.out, layer.in}));
  if (layer.biased) slot(bias_slot(layer, full(name, "bias"), layer.out));
}

void Visitor::operator()(std::string_view name, StackedLinear& layer) {
  ParameterSlot weight = weight_slot(layer, "", {layer.rows(), layer.in});
  ParameterSlot bias = bias_slot(layer, "", layer.rows());
  weight.parts.clear();
  bias.parts.clear();
  for (const StackedLinear::Part& part : layer.parts) {
    const std::string prefix = full(name, part.name);
    weight.parts.push_back({prefix + ".weight", {part.rows, layer.in}});
    bias.parts.push_back({prefix + ".bias", {part.rows}});
  }
  slot(weight);
  if (layer.biased) slot(bias);
}

void Visitor::operator()(std::string_view name, Conv& layer) {
  slot(weight_slot(layer, full(name, "weight"), {layer.out, layer.in, layer.kernel, layer.kernel}));
  if (layer.biased) slot(bias_slot(layer, full(name, "bias"), layer.out));
}

void Visitor::operator()(std::string_view name, Norm& layer) {
  ParameterSlot gain = bias_slot(layer, full(name, "weight"), layer.channels);
  gain.store = [&layer](Tensor t) { layer.gain = std::move(t); };
  slot(gain);
  slot(bias_slot(layer, full(name, "bias"), layer.channels));
}

void Visitor::operator()(std::string_view name, Embedding& layer) {
  const Shape shape{layer.rows, layer.channels};
  slot({{{full(name, "weight"), shape}}, shape, true, [&layer](Tensor t) { layer.table = std::move(t); }});
}

void load_parameters(const VisitModel& visit, Device& device, const ParameterSource& source, DType compute) {
  require<InternalError>(compute == DType::kF32 || compute == DType::kBF16,
                         "load_parameters: compute dtype f32 or bf16 expected, got ", compute);
  MissingKeys missing(source);
  visit(missing);
  missing.check();
  Loader loader(device, source, compute);
  visit(loader);
}

std::vector<ParameterSlot::Part> list_parameters(const VisitModel& visit) {
  Lister lister;
  visit(lister);
  return std::move(lister.parts);
}

int64_t count_parameters(const VisitModel& visit) {
  int64_t sum = 0;
  for (const ParameterSlot::Part& part : list_parameters(visit)) sum += part.shape.numel();
  return sum;
}

}  // namespace rocm_sd
