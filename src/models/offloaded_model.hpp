// OffloadedModel: a model whose weights wait in host memory while other models use the device (--offload).
#pragma once

#include <vector>

#include "models/parameters.hpp"
#include "runtime/weight_stream.hpp"

namespace rocm_sd {

class OffloadedModel {
 public:
  // visit: the model's; the model and the device must outlive this, and the model must be loaded.
  OffloadedModel(VisitModel visit, Device& device) : visit_(std::move(visit)), device_(device) {}

  bool offloaded() const { return offloaded_; }
  // Takes every parameter off the device, into host memory in the plain layout. What was planned or captured
  // with the model must be planned anew after restore(). No effect on an offloaded model.
  void offload();
  // Back onto the device. Throws OutOfMemoryError, and leaves the model offloaded. The values stay in host
  // memory too, so that the next offload() costs nothing: parameters do not change.
  void restore();
  // The same for a stream, which from now on has the only copy of the values: without memory of the device's
  // until the stream is at work. The model is not offloaded afterwards.
  void restore_to(WeightStream& stream);
  // The model's own weights in host memory, where it cannot run but can be changed: then this is done with.
  void to_host();
  // Bytes on the device; for an offloaded model what it took before.
  uint64_t bytes() const { return offloaded() ? bytes_ : resident_bytes(visit_); }
  // What restore() will take of an offloaded model's device at least; else 0.
  uint64_t bytes_to_restore() const;

 private:
  VisitModel visit_;
  Device& device_;
  bool offloaded_ = false;
  std::vector<StoredWeight>
      values_;  // on the host, in the order of visiting; empty before the first offload()
  uint64_t bytes_ = 0;
};

}  // namespace rocm_sd
