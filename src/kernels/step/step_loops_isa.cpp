// The host's loops of the step ops, compiled once per instruction set. Plain loops over short blocks: the
// compiler vectorises them.
#include "kernels/simd.hpp"
#include "kernels/step/step_loops.hpp"

namespace rocm_sd::ROCM_SD_ISA {
namespace {

constexpr int64_t kBlock = 64;

int64_t block_size(int64_t rest) { return rest < kBlock ? rest : kBlock; }

void combine(const float* const* terms, const double* factors, int count, int64_t first, int64_t size,
             float* y) {
  for (int64_t i = 0; i < size; i += kBlock) {
    const int64_t n = block_size(size - i);
    double sum[kBlock] = {};
    for (int t = 0; t < count; ++t) {
      const float* x = terms[t] + first + i;
      const double factor = factors[t];
      for (int64_t j = 0; j < n; ++j) sum[j] += factor * static_cast<double>(x[j]);
    }
    for (int64_t j = 0; j < n; ++j) y[i + j] = static_cast<float>(sum[j]);
  }
}

double value(const float* x, int64_t i) { return static_cast<double>(x[i]); }
double value(const uint16_t* x, int64_t i) {
  const uint32_t bits = static_cast<uint32_t>(x[i]) << 16;
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return static_cast<double>(f);
}

template <class T>
void guide_typed(const T* a, const T* b, double scale, double factor, int64_t size, float* y) {
  for (int64_t i = 0; i < size; ++i)
    y[i] = static_cast<float>(factor * (value(a, i) + scale * (value(b, i) - value(a, i))));
}
void guide(const void* a, const void* b, bool bf16, double scale, double factor, int64_t size, float* y) {
  bf16 ? guide_typed(static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), scale, factor, size, y)
       : guide_typed(static_cast<const float*>(a), static_cast<const float*>(b), scale, factor, size, y);
}

template <class T>
void moments_typed(const T* a, const T* b, double scale, const double* mean, int64_t size, double* sums) {
  constexpr int kWays = 8;  // independent sums; their order depends on the size alone
  double sum[4][kWays] = {};
  const auto add = [&](int64_t i, int way) {
    const double conditional = value(b, i), guided = value(a, i) + scale * (conditional - value(a, i));
    sum[0][way] += guided;
    sum[1][way] += (guided - mean[0]) * (guided - mean[0]);
    sum[2][way] += conditional;
    sum[3][way] += (conditional - mean[1]) * (conditional - mean[1]);
  };
  int64_t i = 0;
  for (; i + kWays <= size; i += kWays)
    for (int way = 0; way < kWays; ++way) add(i + way, way);
  for (; i < size; ++i) add(i, 0);
  for (int s = 0; s < 4; ++s)
    for (int way = 0; way < kWays; ++way) sums[s] += sum[s][way];
}
void guide_moments(const void* a, const void* b, bool bf16, double scale, const double* mean, int64_t size,
                   double* sums) {
  bf16 ? moments_typed(static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), scale, mean, size,
                       sums)
       : moments_typed(static_cast<const float*>(a), static_cast<const float*>(b), scale, mean, size, sums);
}

// NaN and infinity have every bit of the exponent set.
int64_t count_nonfinite(const void* x, bool bf16, int64_t size) {
  int64_t count = 0;
  for (int64_t i = 0; i < size; i += kBlock) {
    const int64_t n = block_size(size - i);
    int here = 0;
    if (bf16) {
      const uint16_t* bits = static_cast<const uint16_t*>(x) + i;
      for (int64_t j = 0; j < n; ++j) here += (bits[j] & 0x7f80) == 0x7f80;
    } else {
      typedef uint32_t Bits __attribute__((may_alias));
      const Bits* bits = static_cast<const Bits*>(x) + i;
      for (int64_t j = 0; j < n; ++j) here += (bits[j] & 0x7f800000u) == 0x7f800000u;
    }
    count += here;
  }
  return count;
}

}  // namespace

extern const StepKernels kStepKernels;
const StepKernels kStepKernels = {combine, guide, guide_moments, count_nonfinite};

}  // namespace rocm_sd::ROCM_SD_ISA
