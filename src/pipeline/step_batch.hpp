// Continuous batching: requests that share the calls of the UNet. One joins between two steps and leaves with
// its last; prompts, seeds, samplers, steps, guidance and run-time LoRAs are its own. Each image becomes what
// it is alone, up to the rounding of another batch size; a request that nobody joins is drawn as by
// Pipeline::generate(), to the same bits.
//
//   StepBatch batch(pipeline, 8);
//   batch.add(1, request, callbacks);
//   while (!batch.empty()) for (StepBatch::Result& result : batch.step()) ...
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

class StepBatch {
 public:
  struct Result {
    uint64_t id = 0;
    std::optional<GenerateResult> drawn;  // or one of these:
    std::exception_ptr error;
    // Why it is to be drawn by Pipeline::generate() while the batch is empty: values that are not finite, a
    // text much longer than the others', too little memory.
    std::string alone;
  };

  // most: images at once, and fewer where the memory plan of a first request says so. The pipeline must
  // outlive the batch; its other functions may be called while the batch is empty.
  StepBatch(Pipeline& pipeline, int most);
  ~StepBatch();  // what is unfinished is dropped
  StepBatch(const StepBatch&) = delete;
  StepBatch& operator=(const StepBatch&) = delete;

  // Why such a request is drawn alone, on this pipeline; empty: it may join. A bad request may join, too: it
  // fails there.
  std::string refusal(const GenerateRequest& request) const;
  // Whether there is room for it beside those at work, and it has their size and their merged LoRAs.
  bool fits(const GenerateRequest& request) const;
  // One that is not refused and fits. Calls of `callbacks` come from step(), on its thread.
  void add(uint64_t id, GenerateRequest request, Callbacks callbacks);

  bool empty() const;
  int images() const;  // at work
  int limit() const;   // of images at once: of the size at work, by its memory plan
  // The requests begin that were added, all go on by one call of the UNet, and those end that have had their
  // last, or were cancelled (CancelledError).
  std::vector<Result> step();
  // The same: `ended` is told of each as soon as it has ended, before the others are decoded. It may not call
  // the batch.
  void step(const std::function<void(Result)>& ended);

 private:
  class Run;
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace rocm_sd
