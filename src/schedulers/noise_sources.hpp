// The generators behind make_noise_source, one per file.
#pragma once

#include <cstdint>
#include <memory>

#include "schedulers/noise.hpp"

namespace rocm_sd {

std::unique_ptr<NoiseSource> make_torch_cpu_noise(uint64_t seed);
std::unique_ptr<NoiseSource> make_philox_noise(uint64_t seed);

}  // namespace rocm_sd
