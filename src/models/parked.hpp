// ParkedModel: a model whose weights wait in host memory while other models use the device (--offload).
#pragma once

#include <vector>

#include "models/parameters.hpp"

namespace rocm_sd {

class ParkedModel {
 public:
  // visit: the model's; the model and the device must outlive this, and the model must be loaded.
  ParkedModel(VisitModel visit, Device& device) : visit_(std::move(visit)), device_(device) {}

  bool parked() const { return parked_; }
  // Takes every parameter off the device, into host memory in the plain layout. What was planned or captured
  // with the model must be planned anew after restore(). No effect on a parked model.
  void park();
  // Back onto the device. Throws OutOfMemoryError, and leaves the model parked. The values stay in host
  // memory too, so that the next park() costs nothing: parameters do not change.
  void restore();
  // Bytes on the device; for a parked model what it took when it was parked.
  uint64_t bytes() const { return parked() ? bytes_ : bytes_held(visit_); }

 private:
  VisitModel visit_;
  Device& device_;
  bool parked_ = false;
  std::vector<StoredWeight> values_;  // on the host, in the order of visiting; empty before the first park()
  uint64_t bytes_ = 0;
};

}  // namespace rocm_sd
