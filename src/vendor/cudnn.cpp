// cuDNN, found when the program runs: a convolution and its tail as one graph of operations, for which the
// library proposes engines (NVIDIA, "cuDNN backend API").
#include <algorithm>
#include <array>
#include <mutex>

#include "vendor/convolution.hpp"
#include "vendor/cudnn_api.hpp"

namespace rocm_sd::vendor {
namespace {

constexpr const char* kProduct = "cuDNN";
// Plans that ask for more are left out.
constexpr int64_t kMostWorkspace = int64_t{256} << 20;

int type_of(DType dtype) {
  return dtype == DType::kF32 ? Cudnn::kFloat : dtype == DType::kF16 ? Cudnn::kHalf : Cudnn::kBfloat16;
}

struct Library {
  Cudnn::Api api;
  Cudnn::Handle handle = nullptr;
  std::mutex mutex;  // the handle has one stream

  void check(Cudnn::Status status, const char* call) const {
    if (status != Cudnn::kSuccess)
      throw_failed(kProduct, call, concat(api.cudnnGetErrorString(status), " (", status, ")"));
  }
};

// One backend descriptor, owned.
class Descriptor {
 public:
  Descriptor(const Library& library, int kind) : library_(library) {
    library_.check(library_.api.cudnnBackendCreateDescriptor(kind, &descriptor_),
                   "cudnnBackendCreateDescriptor");
  }
  ~Descriptor() { library_.api.cudnnBackendDestroyDescriptor(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  Descriptor& set(int name, int type, int64_t count, const void* values) {
    library_.check(library_.api.cudnnBackendSetAttribute(descriptor_, name, type, count, values),
                   "cudnnBackendSetAttribute");
    return *this;
  }
  template <class T>
  Descriptor& set(int name, int type, const T& value) {
    return set(name, type, 1, &value);
  }
  Descriptor& set(int name, const Descriptor& part) {
    return set(name, Cudnn::kTypeDescriptor, 1, &part.descriptor_);
  }
  Descriptor& finalize() {
    library_.check(library_.api.cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
    return *this;
  }
  bool try_finalize() { return library_.api.cudnnBackendFinalize(descriptor_) == Cudnn::kSuccess; }
  // The number of values written, at most asked.
  int64_t get(int name, int type, int64_t asked, void* to) const {
    int64_t count = 0;
    library_.check(library_.api.cudnnBackendGetAttribute(descriptor_, name, type, asked, &count, to),
                   "cudnnBackendGetAttribute");
    return count;
  }
  Cudnn::Descriptor get() const { return descriptor_; }

 private:
  const Library& library_;
  Cudnn::Descriptor descriptor_ = nullptr;
};
using Part = std::shared_ptr<Descriptor>;

// What the graph's tensors in memory are called.
enum Id : int64_t { kX = 1, kFilter, kBias, kResidual, kY, kFirstVirtual };

// The operations of one shape, finalized.
class Graph {
 public:
  Graph(const Library& library, const ConvShape& shape) : library_(library), shape_(shape) {
    std::vector<Cudnn::Descriptor> operations;
    make(operations);
    graph_ = part(Cudnn::kGraph);
    graph_->set(Cudnn::kGraphHandle, Cudnn::kTypeHandle, library_.handle)
        .set(Cudnn::kGraphOps, Cudnn::kTypeDescriptor, static_cast<int64_t>(operations.size()),
             operations.data())
        .finalize();
  }

  const Descriptor& descriptor() const { return *graph_; }
  const Library& library() const { return library_; }
  const ConvShape& shape() const { return shape_; }

 private:
  using Extents = std::array<int64_t, 4>;

  Part part(int kind) {
    parts_.push_back(std::make_shared<Descriptor>(library_, kind));
    return parts_.back();
  }
  // extents and strides in the order N C H W, as cuDNN names them.
  Part tensor(int64_t id, int type, const Extents& extents, const Extents& strides, bool in_memory,
              int64_t alignment = 16) {
    const Part out = part(Cudnn::kTensor);
    const bool is_virtual = !in_memory;
    out->set(Cudnn::kTensorType, Cudnn::kTypeDataType, type)
        .set(Cudnn::kTensorExtents, Cudnn::kTypeInt64, 4, extents.data())
        .set(Cudnn::kTensorStrides, Cudnn::kTypeInt64, 4, strides.data())
        .set(Cudnn::kTensorId, Cudnn::kTypeInt64, id)
        .set(Cudnn::kTensorAlignment, Cudnn::kTypeInt64, alignment);
    if (is_virtual) out->set(Cudnn::kTensorVirtual, Cudnn::kTypeBool, is_virtual);
    out->finalize();
    return out;
  }
  static Extents nhwc(const Extents& e) { return {e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]}; }
  Part dense(int64_t id, int type, const Extents& extents, bool in_memory = true) {
    return tensor(id, type, extents, nhwc(extents), in_memory);
  }

  // The tail's steps in order, each from one virtual tensor of float to the next; the last into y.
  void make(std::vector<Cudnn::Descriptor>& operations) {
    const ConvShape& s = shape_;
    const ConvTail& tail = s.tail;
    const Extents out = {s.batch, s.outputs, s.out_h, s.out_w};
    struct Step {
      int mode;
      Part addend;
    };
    std::vector<Step> steps;
    const Extents per_channel = {1, s.outputs, 1, 1};
    if (tail.bias)
      steps.push_back({Cudnn::kAdd, tensor(kBias, Cudnn::kFloat, per_channel, nhwc(per_channel), true)});
    if (tail.residual) steps.push_back({Cudnn::kAdd, dense(kResidual, type_of(s.result), out)});
    using Activation = ConvTail::Activation;
    if (tail.act != Activation::kNone)
      steps.push_back({tail.act == Activation::kSilu   ? Cudnn::kSwish
                       : tail.act == Activation::kGelu ? Cudnn::kGelu
                                                       : Cudnn::kRelu,
                       nullptr});

    int64_t next_id = kFirstVirtual;
    const auto result = [&](bool last) {
      return last ? dense(kY, type_of(s.result), out) : dense(next_id++, Cudnn::kFloat, out, false);
    };
    Part value = result(steps.empty());
    operations.push_back(forward(value)->get());
    for (size_t i = 0; i < steps.size(); ++i) {
      const Part y = result(i + 1 == steps.size());
      operations.push_back(pointwise(steps[i].mode, value, steps[i].addend, y)->get());
      value = y;
    }
  }
  Part forward(const Part& y) {
    const ConvShape& s = shape_;
    const int type = type_of(s.dtype);
    const std::array<int64_t, 2> one = {1, 1}, stride = {s.stride, s.stride},
                                 before = {s.pad_top, s.pad_left}, after = {s.pad_bottom, s.pad_right};
    const Part conv = part(Cudnn::kConvolution);
    conv->set(Cudnn::kConvDims, Cudnn::kTypeInt64, int64_t{2})
        .set(Cudnn::kConvType, Cudnn::kTypeDataType, Cudnn::kFloat)
        .set(Cudnn::kConvMode, Cudnn::kTypeConvMode, Cudnn::kCrossCorrelation)
        .set(Cudnn::kConvPrePaddings, Cudnn::kTypeInt64, 2, before.data())
        .set(Cudnn::kConvPostPaddings, Cudnn::kTypeInt64, 2, after.data())
        .set(Cudnn::kConvDilations, Cudnn::kTypeInt64, 2, one.data())
        .set(Cudnn::kConvStrides, Cudnn::kTypeInt64, 2, stride.data())
        .finalize();
    const float alpha = 1, beta = 0;
    const Part x = dense(kX, type, {s.batch, s.channels, s.height, s.width});
    const Part w = dense(kFilter, type, {s.outputs, s.channels, s.filter_h, s.filter_w});
    const Part out = part(Cudnn::kConvolutionForward);
    out->set(Cudnn::kForwardX, *x)
        .set(Cudnn::kForwardW, *w)
        .set(Cudnn::kForwardY, *y)
        .set(Cudnn::kForwardConv, *conv)
        .set(Cudnn::kForwardAlpha, Cudnn::kTypeFloat, alpha)
        .set(Cudnn::kForwardBeta, Cudnn::kTypeFloat, beta)
        .finalize();
    return out;
  }
  Part pointwise(int mode, const Part& x, const Part& addend, const Part& y) {
    const Part what = part(Cudnn::kPointwise);
    what->set(Cudnn::kPointwiseMode, Cudnn::kTypePointwiseMode, mode)
        .set(Cudnn::kPointwisePrecision, Cudnn::kTypeDataType, Cudnn::kFloat);
    if (mode == Cudnn::kSwish) what->set(Cudnn::kSwishBeta, Cudnn::kTypeFloat, 1.0f);
    what->finalize();
    const Part out = part(Cudnn::kOperationPointwise);
    out->set(Cudnn::kOpPointwise, *what).set(Cudnn::kOpX, *x).set(Cudnn::kOpY, *y);
    if (addend) out->set(Cudnn::kOpB, *addend);
    out->finalize();
    return out;
  }

  const Library& library_;
  const ConvShape shape_;
  std::vector<Part> parts_;  // what operations and graph refer to
  Part graph_;
};

class CudnnConvolution final : public Convolution {
 public:
  // config: an engine's, whose plan `plan` is.
  CudnnConvolution(Library& library, std::shared_ptr<Graph> graph, Part config, Part plan,
                   size_t workspace_bytes, std::string name)
      : library_(library),
        graph_(std::move(graph)),
        config_(std::move(config)),
        plan_(std::move(plan)),
        workspace_bytes_(workspace_bytes),
        name_(std::move(name)) {}
  std::string name() const override { return name_; }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void run(void* stream, const ConvOperands& o) override {
    const ConvTail& tail = graph_->shape().tail;
    std::vector<int64_t> ids;
    std::vector<const void*> pointers;
    const auto add = [&](bool used, Id id, const void* data) {
      if (!used) return;
      ids.push_back(id);
      pointers.push_back(data);
    };
    add(true, kX, o.x);
    add(true, kFilter, o.filter);
    add(tail.bias, kBias, o.bias);
    add(tail.residual, kResidual, o.residual);
    add(true, kY, o.y);
    const auto count = static_cast<int64_t>(ids.size());
    const std::lock_guard lock(library_.mutex);
    Descriptor pack(library_, Cudnn::kVariantPack);
    pack.set(Cudnn::kPackIds, Cudnn::kTypeInt64, count, ids.data())
        .set(Cudnn::kPackPointers, Cudnn::kTypePointer, count, pointers.data())
        .set(Cudnn::kPackWorkspace, Cudnn::kTypePointer, o.workspace)
        .finalize();
    library_.check(library_.api.cudnnSetStream(library_.handle, stream), "cudnnSetStream");
    library_.check(library_.api.cudnnBackendExecute(library_.handle, plan_->get(), pack.get()),
                   "cudnnBackendExecute");
  }

 private:
  Library& library_;
  std::shared_ptr<Graph> graph_;
  Part config_, plan_;
  size_t workspace_bytes_;
  std::string name_;
};

class CudnnLibrary final : public ConvLibrary {
 public:
  explicit CudnnLibrary(const Cudnn::Api& api) {
    library_.api = api;
    library_.check(api.cudnnCreate(&library_.handle), "cudnnCreate");
  }
  ~CudnnLibrary() override { library_.api.cudnnDestroy(library_.handle); }

  bool fuses_tails() const override { return true; }
  bool widens() const override { return true; }

  std::vector<std::shared_ptr<Convolution>> prepare(const ConvShape& shape, int most) override {
    const std::lock_guard lock(library_.mutex);
    const auto graph = std::make_shared<Graph>(library_, shape);
    std::vector<std::shared_ptr<Convolution>> out;
    for (const int mode : {Cudnn::kModeA, Cudnn::kModeFallback}) {
      for (const Part& config : configs(*graph, mode, most)) {
        if (static_cast<int>(out.size()) == most) break;
        if (!is_exact(*config, shape.dtype)) continue;
        const auto plan = std::make_shared<Descriptor>(library_, Cudnn::kPlan);
        plan->set(Cudnn::kPlanHandle, Cudnn::kTypeHandle, library_.handle).set(Cudnn::kPlanConfig, *config);
        if (!plan->try_finalize()) continue;  // proposed, but not for this problem after all
        int64_t bytes = 0;
        plan->get(Cudnn::kPlanWorkspace, Cudnn::kTypeInt64, 1, &bytes);
        if (bytes < 0 || bytes > kMostWorkspace) continue;
        out.push_back(std::make_shared<CudnnConvolution>(library_, graph, config, plan,
                                                         static_cast<size_t>(bytes), concat(out.size())));
      }
      if (!out.empty()) return out;
    }
    throw LibraryError(concat(kProduct, ": has no engine for it"));
  }

 private:
  // Engines that the heuristic proposes, best first; none where it knows no answer.
  std::vector<Part> configs(const Graph& graph, int mode, int most) {
    Descriptor heuristics(library_, Cudnn::kHeuristics);
    heuristics.set(Cudnn::kHeurGraph, graph.descriptor()).set(Cudnn::kHeurMode, Cudnn::kTypeHeurMode, mode);
    if (!heuristics.try_finalize()) return {};
    // Some will not finalize: more are asked for than are wanted.
    std::vector<Part> out;
    std::vector<Cudnn::Descriptor> raw;
    for (int i = 0; i < 4 * most; ++i) {
      out.push_back(std::make_shared<Descriptor>(library_, Cudnn::kEngineConfig));
      raw.push_back(out.back()->get());
    }
    const int64_t count = heuristics.get(Cudnn::kHeurResults, Cudnn::kTypeDescriptor,
                                         static_cast<int64_t>(raw.size()), raw.data());
    out.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(out.size()))));
    return out;
  }

  // Whether the engine sums in float, and gives the same bits every time. With operands of float the matrix
  // units would round them to 10 bits.
  bool is_exact(const Descriptor& config, DType dtype) const {
    const Descriptor engine(library_, Cudnn::kEngine);
    Cudnn::Descriptor raw = engine.get();
    config.get(Cudnn::kConfigEngine, Cudnn::kTypeDescriptor, 1, &raw);
    std::array<int, Cudnn::kNoteCount> notes{};
    const int64_t count = std::clamp<int64_t>(
        engine.get(Cudnn::kEngineNotes, Cudnn::kTypeNote, Cudnn::kNoteCount, notes.data()), 0,
        Cudnn::kNoteCount);
    return std::none_of(notes.begin(), notes.begin() + count, [&](int note) {
      return note == Cudnn::kDownConverts || note == Cudnn::kReducedPrecision ||
             note == Cudnn::kNondeterministic || note == Cudnn::kWinograd ||
             (note == Cudnn::kTensorCore && dtype == DType::kF32);
    });
  }

  Library library_;
};

}  // namespace

std::shared_ptr<ConvLibrary> open_cudnn() {
  const DynamicLibrary library = open_library(kProduct);
  Cudnn::Api api;
#define ROCM_SD_LOAD(name, ...) \
  api.name = reinterpret_cast<decltype(api.name)>(find_function(library, #name));
  ROCM_SD_CUDNN_FUNCTIONS(ROCM_SD_LOAD)
  ROCM_SD_LOAD(cudnnGetErrorString)
#undef ROCM_SD_LOAD
  return std::make_shared<CudnnLibrary>(api);
}

}  // namespace rocm_sd::vendor
