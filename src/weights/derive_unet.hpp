// The configuration of a UNet, told from the names and shapes of its tensors.
#pragma once

#include "weights/derive_config.hpp"

namespace rocm_sd {

// The JSON of UNet2DConditionModel. The structure is the regular one that holds every tensor there is: as
// many levels and residual blocks as the highest number says, attention on a level's way down and up alike,
// all its transformers equally deep. So a tensor, layer or block that is missing is one that the model
// expects and does not find. SSD-1B and Vega, which are not regular, are known by their depths. Throws
// FormatError where there are no levels, or more than 16.
nlohmann::json derive_unet(const WeightStore& store, const DeriveHints& hints);

}  // namespace rocm_sd
