// What every kernel body sees of a device: how functions are marked, and 16-bit storage.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__HIP__) || defined(__CUDACC__)
#define ROCM_SD_DEVICE __device__ inline
#else
#define ROCM_SD_DEVICE inline
#endif

namespace rocm_sd {

// The upper half of a float. A storage format: bodies compute in float.
struct Bf16 {
  uint16_t bits;
};

ROCM_SD_DEVICE float to_float(float x) { return x; }
ROCM_SD_DEVICE float to_float(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

ROCM_SD_DEVICE void store(float& to, float value) { to = value; }
// Rounds to nearest even; a NaN stays one.
ROCM_SD_DEVICE void store(Bf16& to, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const uint32_t rounded = value == value ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000;
  to.bits = static_cast<uint16_t>(rounded >> 16);
}

}  // namespace rocm_sd
