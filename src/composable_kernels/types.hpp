// What every kernel body sees of a device: how functions are marked, and 16-bit storage.
#pragma once

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

#include <cstdint>

#if defined(__HIP__) && !defined(__CUDACC__)
// Spelt out here, so that a kernel needs none of HIP's headers.
#ifndef __device__
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#endif
#endif
#if defined(__CUDACC__)
#define ROCM_SD_DEVICE __device__ inline
#elif defined(__HIP__)
// Always: in large kernels clang gives up inlining, and fragments passed by reference then live in scratch.
#define ROCM_SD_DEVICE __device__ __attribute__((always_inline)) inline
#endif
#if defined(__HIP__) || defined(__CUDACC__)
#define ROCM_SD_ON_GPU 1
#else
#define ROCM_SD_DEVICE inline
#endif
#if defined(__CUDACC__)
#define ROCM_SD_UNROLL _Pragma("unroll")
#define ROCM_SD_ROLLED _Pragma("unroll 1")
#elif defined(__clang__)
#define ROCM_SD_UNROLL _Pragma("clang loop unroll(full)")
#define ROCM_SD_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define ROCM_SD_UNROLL
#define ROCM_SD_ROLLED
#endif

namespace rocm_sd {

// Storage formats: bodies compute in float.
struct Bf16 {  // the upper half of a float
  uint16_t bits;
};
struct Half {  // IEEE binary16
  uint16_t bits;
};

ROCM_SD_DEVICE float to_float(float x) { return x; }
ROCM_SD_DEVICE float to_float(Bf16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}
ROCM_SD_DEVICE float to_float(Half x) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(x.bits));
#elif defined(__CUDACC__)
  return 0;  // nvcc's host pass; never called
#else
  return static_cast<float>(__builtin_bit_cast(_Float16, x.bits));
#endif
}

// Round to nearest even; a NaN stays one. Half: beyond 65504 becomes infinite.
ROCM_SD_DEVICE void store(float& to, float value) { to = value; }
ROCM_SD_DEVICE void store(Bf16& to, float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = value == value ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000;
  to.bits = static_cast<uint16_t>(rounded >> 16);
}
ROCM_SD_DEVICE void store(Half& to, float value) {
#if defined(__CUDA_ARCH__)
  to.bits = __half_as_ushort(__float2half_rn(value));
#elif defined(__CUDACC__)
  to.bits = 0;
  (void)value;
#else
  to.bits = __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
#endif
}

// Two neighbours at an address that is a multiple of 4.
ROCM_SD_DEVICE void store_pair(Bf16* to, float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  *reinterpret_cast<uint32_t*>(to) = bits;
#else
  store(to[0], low);
  store(to[1], high);
#endif
}
ROCM_SD_DEVICE void store_pair(Half* to, float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  *reinterpret_cast<uint32_t*>(to) = bits;
#else
  store(to[0], low);
  store(to[1], high);
#endif
}

// How TMA walks a matrix: the driver's own form, made by GpuDevice::map_tiles, part of a kernel's
// argument.
struct alignas(128) TensorMap {
  uint64_t words[16];
};

// 16 bytes of a 16-bit type: what one lane loads, stores or copies at a time.
template <class T>
struct alignas(16) Vec8 {
  T x[8];
};

}  // namespace rocm_sd
