// cuDNN's convolutions, found when the program runs: a convolution and its epilogue as one graph of
// operations.
#include "vendor/convolution.hpp"
#include "vendor/cudnn_graph.hpp"

namespace rocm_sd::vendor {
namespace {

using cudnn::Library;
using cudnn::Part;
using cudnn::type_of;

// What the graph's tensors in memory are called.
enum Id : int64_t { kX = 1, kFilter, kBias, kResidual, kY, kFirstVirtual };

class ConvGraph final : public cudnn::Graph {
 public:
  ConvGraph(const Library& library, const ConvShape& shape) : Graph(library), shape_(shape) { make(); }
  const ConvShape& shape() const { return shape_; }

 private:
  static Extents nhwc(const Extents& e) { return {e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]}; }
  Part dense(int64_t id, int type, const Extents& extents, bool in_memory = true) {
    return tensor(id, type, extents, nhwc(extents), in_memory);
  }

  // The epilogue's steps in order, each from one virtual tensor of float to the next; the last into y.
  void make() {
    const ConvShape& s = shape_;
    const ConvEpilogue& epilogue = s.epilogue;
    const Extents out = {s.batch, s.outputs, s.out_h, s.out_w};
    struct Step {
      int mode;
      Part addend;
    };
    std::vector<Step> steps;
    const Extents per_channel = {1, s.outputs, 1, 1};
    if (epilogue.bias)
      steps.push_back({Cudnn::kAdd, tensor(kBias, Cudnn::kFloat, per_channel, nhwc(per_channel), true)});
    if (epilogue.residual) steps.push_back({Cudnn::kAdd, dense(kResidual, type_of(s.result), out)});
    using Activation = ConvEpilogue::Activation;
    if (epilogue.act != Activation::kNone)
      steps.push_back({epilogue.act == Activation::kSilu   ? Cudnn::kSwish
                       : epilogue.act == Activation::kGelu ? Cudnn::kGelu
                                                           : Cudnn::kRelu,
                       nullptr});

    int64_t next_id = kFirstVirtual;
    const auto result = [&](bool last) {
      return last ? dense(kY, type_of(s.result), out) : dense(next_id++, Cudnn::kFloat, out, false);
    };
    Part value = result(steps.empty());
    std::vector<Part> operations = {forward(value)};
    for (size_t i = 0; i < steps.size(); ++i) {
      const Part y = result(i + 1 == steps.size());
      operations.push_back(pointwise(steps[i].mode, value, steps[i].addend, y));
      value = y;
    }
    finish(operations);
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

  const ConvShape shape_;
};

class CudnnConvolution final : public Convolution {
 public:
  CudnnConvolution(Library& library, std::shared_ptr<ConvGraph> graph, cudnn::Engine engine, std::string name)
      : library_(library), graph_(std::move(graph)), engine_(std::move(engine)), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  size_t workspace_bytes() const override { return engine_.workspace_bytes; }

  void run(void* stream, const ConvOperands& o) override {
    const ConvEpilogue& epilogue = graph_->shape().epilogue;
    std::vector<cudnn::Bound> tensors = {{kX, o.x}, {kFilter, o.filter}};
    if (epilogue.bias) tensors.push_back({kBias, o.bias});
    if (epilogue.residual) tensors.push_back({kResidual, o.residual});
    tensors.push_back({kY, o.y});
    cudnn::execute(library_, engine_, tensors, o.workspace, stream);
  }

 private:
  Library& library_;
  std::shared_ptr<ConvGraph> graph_;
  cudnn::Engine engine_;
  std::string name_;
};

class CudnnConvolutions final : public ConvLibrary {
 public:
  bool fuses_epilogues() const override { return true; }
  bool widens() const override { return true; }

  std::vector<std::shared_ptr<Convolution>> prepare(const ConvShape& shape, int most) override {
    const std::lock_guard lock(library_.mutex);
    const auto graph = std::make_shared<ConvGraph>(library_, shape);
    std::vector<std::shared_ptr<Convolution>> out;
    for (cudnn::Engine& engine : cudnn::engines_for(library_, *graph, shape.dtype, most))
      out.push_back(
          std::make_shared<CudnnConvolution>(library_, graph, std::move(engine), concat(out.size())));
    return out;
  }

 private:
  Library library_;
};

}  // namespace

std::shared_ptr<ConvLibrary> open_cudnn() { return std::make_shared<CudnnConvolutions>(); }

}  // namespace rocm_sd::vendor
