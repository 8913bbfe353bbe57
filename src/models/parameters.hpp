// Visiting a model's parameters by their checkpoint names: one visit(v) per layer serves loading, the report
// of missing keys, and counting.
//
//   struct Mlp {
//     Linear first, second;
//     void visit(Visitor& v) { v("fc1", first);  v("fc2", second); }
//   };
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "models/layers.hpp"
#include "models/precision.hpp"
#include "runtime/device.hpp"

namespace rocm_sd {

// How matrices and filters are stored: in the compute type, in f16 under products in f32, or in 8 bits with a
// scale per output channel; with products, linear layers are multiplied so, too, where the device has such
// products.
struct WeightFormat {
  DType eight_bit = DType::kF32;  // kI8 or kF8E4M3; else in the compute type
  bool products = false;
  // Where the compute type is f32: in f16, or, where a tensor has values beyond it, in bf16. Under products
  // in f32 rounded weights are all the error there is, and those of f16 lose an eighth of what bf16's do.
  bool short_for_f32 = false;

  explicit operator bool() const { return eight_bit != DType::kF32; }
  std::string name() const;  // "", "int8", "fp8-products"
};

// One tensor of a model: a tensor of the checkpoint, or several of them stacked by rows.
struct ParameterSlot {
  struct Part {
    std::string name;  // full name in the checkpoint
    Shape shape;       // of what is cut from it, where it is cut
    CutPart cut = {};
  };
  std::vector<Part> parts;
  Shape shape;             // of the whole
  bool matrix = false;     // stored in the compute dtype or with more bits; else f32 (norms, biases)
  std::string layer;       // path of the layer of a matrix: what patterns of precisions match; else empty
  bool rows_read = false;  // of which a picture reads a few rows: may lie in mapped memory
  std::function<void(StoredWeight)> store;  // hands the loaded tensor to the layer
  std::function<StoredWeight()> fetch;      // the layer's tensor in the plain layout
  std::function<size_t()> resident;         // bytes that it takes now, in every layout
  // Of a layer that takes run-time LoRAs; else empty.
  const Weight* weight = nullptr;
  LowRankTerms* low_rank = nullptr;

  bool is_cut() const;  // any of its parts
};

// Where parameters come from: a checkpoint (store_source.hpp), or values made up by a test.
// Thread-compatible.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  virtual std::string title() const = 0;  // for messages: "unet of sd15.safetensors"
  virtual bool has(const std::string& name) const = 0;
  // Writes shape.numel() elements of dtype to host memory. Throws ShapeError where the tensor has another
  // shape; trailing ones do not count ([C,C,1,1] is [C,C]).
  virtual void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const = 0;
  // Elements [begin, begin + count) of that, for large tensors. By default the whole is read and cut.
  virtual void read_part(const std::string& name, const Shape& shape, int64_t begin, int64_t count,
                         DType dtype, void* dst) const;
  // Whether several threads may call read_part() at once, which then reads no more than it is asked for.
  virtual bool concurrent() const { return false; }
  // Whether read() works. Where it does not, ready() has everything, and layers that a model in bf16 would
  // store as split bf16 are stored plain.
  virtual bool readable() const { return true; }
  // The slot's tensor ready for use, in `dtype`, on the device that is loaded for: no copy of it is made.
  // Empty (the default): it is read. May keep memory of the source's.
  virtual Tensor ready(const ParameterSlot& slot, DType dtype, Device& device) const;
  // The model knows of this tensor and does not need it: not to be reported as unused.
  virtual void ignore(const std::string& name) const = 0;
};

// Some of a model's slots.
using SlotFilter = std::function<bool(const ParameterSlot&)>;

class Visitor {
 public:
  virtual ~Visitor() = default;

  void operator()(std::string_view name, Linear& layer);
  void operator()(std::string_view name, StackedLinear& layer);  // name is the prefix of its parts
  void operator()(std::string_view name, Conv& layer);
  void operator()(std::string_view name, Norm& layer);
  void operator()(std::string_view name, Embedding& layer);

  template <class Layer>
    requires requires(Layer& layer, Visitor& v) { layer.visit(v); }
  void operator()(std::string_view name, Layer& layer) {
    const size_t length = enter(name);
    layer.visit(*this);
    prefix_.resize(length);
  }
  template <class Layer>
  void operator()(std::string_view name, std::optional<Layer>& layer) {
    if (layer) (*this)(name, *layer);
  }
  template <class Layer>
  void operator()(std::string_view name, std::vector<Layer>& layers) {
    for (size_t i = 0; i < layers.size(); ++i) (*this)(concat(name, ".", i), layers[i]);
  }

 protected:
  virtual void slot(const ParameterSlot& slot) = 0;
  virtual bool sees_all() const { return false; }  // whatever a VisitOnly leaves out

 private:
  friend class VisitOnly;
  void offer(const ParameterSlot& of);
  size_t enter(std::string_view name);  // appends "name." to the prefix; returns the old length
  std::string full(std::string_view name) const;
  std::string full(std::string_view name, std::string_view leaf) const;

  std::string prefix_;
  const SlotFilter* only_ = nullptr;
};

// While it lives, the visitor passes over the slots that `only` does not name: of a model that is loaded in
// part. An empty filter names all.
class VisitOnly {
 public:
  VisitOnly(Visitor& visitor, const SlotFilter& only) : visitor_(visitor), before_(visitor.only_) {
    if (only) visitor_.only_ = &only;
  }
  ~VisitOnly() { visitor_.only_ = before_; }
  VisitOnly(const VisitOnly&) = delete;
  VisitOnly& operator=(const VisitOnly&) = delete;

 private:
  Visitor& visitor_;
  const SlotFilter* before_;
};

template <class Model>
concept Visitable = requires(Model& model, Visitor& v) { model.visit(v); };

// Where a model's parameters are read to, and the device that multiplies: another one where they wait in host
// memory until their stage begins.
struct LoadTarget {
  Device& memory;
  const Device& products;
  LoadTarget(Device& device) : memory(device), products(device) {}
  LoadTarget(Device& to, const Device& multiplies) : memory(to), products(multiplies) {}
};

// Whether a model whose layers have at most so many channels is narrow: its products are few, and average
// rounding least, so that its pictures lose most by bf16. ROCM_SD_BF16=products in the environment, for
// tests: no model is.
bool is_narrow(int64_t channels);

// The type that a model loaded as `dtype` multiplies in on this device: f32 for bf16 where the CPU has no
// products of bf16, or none that are faster, as for a narrow model (channels: the most of a layer's maps),
// where types are converted about as long as multiplied. Its matrices are then stored in 16 bits
// (short_for_f32), and nothing else is rounded. ROCM_SD_BF16=products, for tests: `dtype` on any CPU.
DType product_dtype(const Device& device, DType dtype, int64_t channels);

// The memory of a parameter: the device's, or mapped memory of the host's for large tables of which a picture
// reads a few rows (CLIP's vocabularies: 0.2 GB of SDXL).
Tensor make_parameter(Device& device, const ParameterSlot& slot, DType dtype);

// Each of these takes the model's visit as a function, so that one compiled body serves every model.
using VisitModel = std::function<void(Visitor&)>;
// only: the slots to read, where a few of a loaded model's change; empty: all.
void load_parameters(const VisitModel& visit, Device& device, const ParameterSource& source, DType compute,
                     const WeightFormat& weights, const SlotFilter& only,
                     std::span<const PrecisionRow> precisions);
int64_t count_parameters(const VisitModel& visit);
uint64_t resident_bytes(const VisitModel& visit);  // of all parameters, in the layouts they have now
std::vector<ParameterSlot::Part> list_parameters(const VisitModel& visit);
// The layers that have a matrix, in the order of visiting, and what the rows make of each.
struct LayerListing {
  std::string layer;
  std::vector<ParameterSlot::Part> parts;
  LayerPrecision precision;
};
std::vector<LayerListing> list_precisions(const VisitModel& visit, std::span<const PrecisionRow> precisions);

// A model's rows, where it has any: model.precisions().
template <class Model>
std::vector<PrecisionRow> precisions_of(const Model& model) {
  if constexpr (requires { model.precisions(); })
    return model.precisions();
  else
    return {};
}

// Reads every parameter into device memory: matrices, filters and tables as `compute` (f32, bf16 or f16; a
// model in bf16 as its precisions say), norms and biases as f32. With weights in 8 bits, those matrices and
// filters that allow it are quantised from f32 on the host, a row at a time, whatever the device. Tensors are
// converted on the host and copied to a GPU a piece at a time, so that host memory stays small; by several
// threads where the source is concurrent(). Throws
// FormatError listing every missing key at once, ShapeError (or FormatError) where a shape is wrong; each
// names the tensor, what was expected and the file.
template <Visitable Model>
void load_parameters(Model& model, Device& device, const ParameterSource& source, DType compute,
                     const WeightFormat& weights = {}, const SlotFilter& only = {}) {
  load_parameters([&](Visitor& v) { model.visit(v); }, device, source, compute, weights, only,
                  precisions_of(model));
}

// Elements of all parameters; no memory is needed.
template <Visitable Model>
int64_t count_parameters(Model model) {
  return count_parameters([&](Visitor& v) { model.visit(v); });
}

template <Visitable Model>
std::vector<LayerListing> list_precisions(Model model) {
  return list_precisions([&](Visitor& v) { model.visit(v); }, precisions_of(model));
}

// Names and shapes in the checkpoint, in the order of visiting.
template <Visitable Model>
std::vector<ParameterSlot::Part> list_parameters(Model model) {
  return list_parameters([&](Visitor& v) { model.visit(v); });
}

}  // namespace rocm_sd
