// What a denoising model was trained to predict.
#pragma once

namespace rocm_sd {

// The noise, v = sqrt(a) noise - sqrt(1 - a) x0 (Salimans and Ho, "Progressive Distillation", 2022), or x0
// itself.
enum class Prediction { kEpsilon, kV, kSample };

}  // namespace rocm_sd
