// Halves to floats and back, many at once: by the CPU's conversions where it has them (F16C), with the same
// bits as float_to_f16() and f16_to_float() give one by one.
#pragma once

#include <cstdint>

namespace rocm_sd {

void floats_to_f16(const float* from, uint16_t* to, int64_t count);
void f16_to_floats(const uint16_t* from, float* to, int64_t count);

}  // namespace rocm_sd
