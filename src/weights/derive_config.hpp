// A component's configuration, told from the shapes of its tensors.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "weights/store.hpp"

namespace rocm_sd {

// What shapes cannot say.
struct DeriveHints {
  ModelKind kind = ModelKind::kSd1;
  bool upcast_attention = false;  // SD 2.x with v prediction: attention products overflow fp16
  bool drops_last_layer = false;  // the text encoder's last layer stands in the file but is not run (SD 2.x)
  bool quick_gelu = false;        // CLIP-L's activation
  int64_t pooled_width = 0;       // of the second text encoder's projection; 0 where unknown
};

// The JSON that Diffusers' (transformers') config.json of the component holds. Throws FormatError naming the
// tensor that is missing or has a shape that no such model has.
nlohmann::json derive_config(const WeightStore& store, const DeriveHints& hints);

// Width of a text encoder's states. Throws FormatError where its token table is missing.
int64_t text_width(const WeightStore& text);

// Width of the text states that the UNet attends to; 0 where it attends to none.
int64_t cross_attention_width(const WeightStore& unet);

}  // namespace rocm_sd
