// Residency: which models' weights are on their device. Under offload only those of the stage at work are, on
// each device, and the UNet's may be streamed, a part of them at a time.
#pragma once

#include <memory>
#include <vector>

#include "models/offloaded_model.hpp"
#include "pipeline/components.hpp"

namespace rocm_sd {

class Residency {
 public:
  // components must outlive this and stay where they are. Weights that were loaded for offload lie in host
  // memory at first.
  explicit Residency(Components& components);

  bool offload() const { return offload_; }
  // From the next need() on; what is loaded from now on is loaded to host memory.
  void begin_offload() { offload_ = components_.loaded_for_offload = true; }
  // From the next need() on the weights of Part::kUnet are streamed for programs on this arena, under
  // offload.
  void begin_stream(Arena& arena);
  WeightStream* stream() const { return stream_.get(); }  // null: none
  // What need() leaves to be done where a part is streamed: after its programs are planned.
  void enter(Part part);

  // Puts the part's weights on its device and, under offload, takes the others of that device off first. True
  // where the part's weights lie elsewhere than when it was last asked for: what was planned with them must
  // be planned anew.
  bool need(Part part);
  // components.controls, components.image_models are others than before; those that went are still alive.
  void controls_changed();
  void image_models_changed();
  // Under offload: the part's models have their weights in host memory, to be changed there; reloaded() must
  // follow.
  void to_host(Part part);
  // The part's models were loaded anew.
  void reloaded(Part part);
  bool resident(Part part) const;
  // Bytes of the device that the part's weights take, or took before they were offloaded.
  uint64_t weight_bytes(Part part) const;
  uint64_t bytes_to_restore(Part part) const;  // of the device, by need(), at least

 private:
  struct Entry {
    Part part;
    std::unique_ptr<OffloadedModel> model;
    bool encoder = false;
    const void* guest = nullptr;  // of a model that comes and goes with requests: itself
    bool streamed = false;
  };
  bool streams(Part part) const { return stream_ && part == Part::kUnet; }
  bool need_streamed();
  void track(Part part);
  template <class Model>
  void track_guest(Part part, Model& model);
  template <class Model>
  void guests_changed(Part part, const std::vector<std::shared_ptr<Model>>& now);
  void follow_encoder();

  Components& components_;
  bool offload_;
  std::vector<Entry> entries_;
  bool has_encoder_ = false;
  PerPart<bool> moved_;
  std::unique_ptr<WeightStream> stream_;
};

}  // namespace rocm_sd
