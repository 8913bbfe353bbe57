// EngineUnet: one UNet of the engine's under PyTorch. Its forward is planned once per shape and stream, and
// then started as one graph of the GPU: an eager forward of some hundred operators would keep the host busier
// than the GPU.
#pragma once

#include <memory>
#include <vector>

#include "models/unet.hpp"
#include "pytorch_integration/op_scope.hpp"

namespace rocm_sd::torch_ops {

// How a forward runs.
enum class ForwardMode {
  kAuto,      // eagerly on the host, captured while PyTorch records a graph, else prepared
  kEager,     // operator by operator
  kCaptured,  // the same, and nothing that an earlier call made is read
  kPrepared,  // planned and replayed; keeps its memory between calls
};

// Sizes as engine_unet() in engine_models.hpp takes them.
struct UnetInputs {
  const AtTensor& sample;
  const AtTensor& timestep;
  const AtTensor& text;
  const OptionalAt& text_embeds;
  const OptionalAt& time_ids;
  const OptionalAt& guidance;
  bool same_text = false;  // the text is the previous call's
};

class EngineUnet {
 public:
  explicit EngineUnet(UNet unet);
  ~EngineUnet();  // waits for graphs that still run
  EngineUnet(const EngineUnet&) = delete;
  EngineUnet& operator=(const EngineUnet&) = delete;

  // The prediction [N,C',H,W], channels_last, of the sample's type. One call at a time.
  AtTensor run(OpScope& scope, const UnetInputs& inputs, ForwardMode mode);

 private:
  struct Prepared;
  struct Text;
  struct OfStream;
  OfStream& of_stream(Device& device, void* stream);
  void keep_text(Exec& exec, OfStream& of, const AtTensor& text, ForwardMode mode);
  AtTensor run_eager(OpScope& scope, const UnetInputs& inputs, const TextCache& text);
  AtTensor run_prepared(OfStream& of, const UnetInputs& inputs);

  UNet unet_;
  int64_t texts_ = 0;  // how many different ones there were
  // The last one used at the end. What two streams do at once they must not do in the same memory.
  std::vector<std::unique_ptr<OfStream>> streams_;
};

}  // namespace rocm_sd::torch_ops
