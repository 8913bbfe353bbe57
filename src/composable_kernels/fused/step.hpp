// What a sampler does to latents.
// Problem   y = sum of factor * term; y = a + scale (b - a), with the standard deviation mixed towards b's;
//           y = a mask + b (1 - mask); y = mean + exp(log variance / 2) noise; how many elements are
//           not finite
// Mapping   a thread takes four neighbouring elements (posterior: one), the grid's threads in turn; guidance
//           with rescale: a workgroup takes a part of an image, in two kernels
// Traffic   each operand once (guidance with rescale: five times, from cache)
// Numerics  double, rounded once (posterior: float); threads of a workgroup summed as a tree, waves in order
// Limits    none
#pragma once

#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"

namespace rocm_sd {
namespace steps {

// Calls body(i, count) for pieces of up to kVec of `size` elements.
template <int kVec, class Arch, class Body>
ROCM_SD_DEVICE void for_pieces(const Block<Arch>& block, int64_t size, const Body& body) {
  for (int64_t i = block.first_item() * kVec; i < size; i += block.item_stride() * kVec)
    body(i, i + kVec <= size ? kVec : static_cast<int>(size - i));
}

// count of kVec elements from `from`, in one load where the address allows.
template <int kVec, class T>
ROCM_SD_DEVICE Pack<T, kVec> load_some(const T* from, int count, bool aligned) {
  if (aligned && count == kVec) return load_pack<kVec>(from);
  Pack<T, kVec> pack{};
  for (int j = 0; j < kVec; ++j)
    if (j < count) pack.x[j] = from[j];
  return pack;
}
template <int kVec, class T>
ROCM_SD_DEVICE void store_some(T* to, const Pack<T, kVec>& pack, int count, bool aligned) {
  if (aligned && count == kVec) return store_pack(to, pack);
  for (int j = 0; j < kVec; ++j)
    if (j < count) to[j] = pack.x[j];
}

}  // namespace steps

struct LinearCombinationParams {
  static constexpr int kMaxTerms = 12;
  const float* terms[kMaxTerms];
  double factors[kMaxTerms];
  float* y;
  int64_t size;
  int32_t count, aligned;  // terms; whether all lie at multiples of 16 bytes
  uint32_t workgroups;     // of the grid
};

template <class Arch>
ROCM_SD_DEVICE void linear_combination_body(const LinearCombinationParams& p, const Block<Arch>& block) {
  constexpr int kVec = 4;
  steps::for_pieces<kVec>(block, p.size, [&](int64_t i, int count) {
    double sum[kVec] = {};
    for (int t = 0; t < p.count; ++t) {
      const auto term = steps::load_some<kVec>(p.terms[t] + i, count, p.aligned != 0);
      for (int j = 0; j < kVec; ++j) sum[j] += p.factors[t] * static_cast<double>(term.x[j]);
    }
    Pack<float, kVec> y;
    for (int j = 0; j < kVec; ++j) y.x[j] = static_cast<float>(sum[j]);
    steps::store_some(p.y + i, y, count, p.aligned != 0);
  });
}

struct BlendParams {
  const float *a, *b, *mask;
  float* y;
  int64_t size;
  int32_t aligned;      // whether all lie at multiples of 16 bytes
  uint32_t workgroups;  // of the grid
};

template <class Arch>
ROCM_SD_DEVICE void blend_body(const BlendParams& p, const Block<Arch>& block) {
  constexpr int kVec = 4;
  steps::for_pieces<kVec>(block, p.size, [&](int64_t i, int count) {
    const auto a = steps::load_some<kVec>(p.a + i, count, p.aligned != 0);
    const auto b = steps::load_some<kVec>(p.b + i, count, p.aligned != 0);
    const auto mask = steps::load_some<kVec>(p.mask + i, count, p.aligned != 0);
    Pack<float, kVec> y;
    for (int j = 0; j < kVec; ++j) {
      const auto m = static_cast<double>(mask.x[j]);
      y.x[j] = static_cast<float>(m * static_cast<double>(a.x[j]) + (1 - m) * static_cast<double>(b.x[j]));
    }
    steps::store_some(p.y + i, y, count, p.aligned != 0);
  });
}

template <class T>
struct PosteriorParams {
  const T* moments;    // [pixels, 2 channels]: means, log variances
  const float* noise;  // [pixels, channels] or null
  float* y;            // [pixels, channels]
  int64_t size;        // pixels * channels
  int64_t channels;
  uint32_t workgroups;  // of the grid
};

// Cfg::T is the storage type.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void posterior_body(const PosteriorParams<typename Cfg::T>& p, const Block<Arch>& block) {
  for (int64_t i = block.first_item(); i < p.size; i += block.item_stride()) {
    const auto* moments = p.moments + i / p.channels * 2 * p.channels + i % p.channels;
    float y = to_float(moments[0]);
    if (p.noise) {
      const float given = to_float(moments[p.channels]);
      const float log_variance = given < -30.0f ? -30.0f : given > 20.0f ? 20.0f : given;
      y += Arch::exp(0.5f * log_variance) * p.noise[i];
    }
    p.y[i] = y;
  }
}

template <class T>
struct GuidanceParams {
  const T* x;  // [2, images, size]
  float* y;    // [images, size]
  int64_t images, size;
  double scale, rescale;
  int32_t aligned;      // whether both lie at multiples of 16 bytes, and the second half of x too
  uint32_t workgroups;  // of the grid
  // With rescale:
  double* moments;  // [images, parts, 4]: mean and squares of the guided part, of the conditional one
  int64_t part;     // elements of a part but the last
  int32_t parts;    // of an image
};

namespace steps {

// Elements of image n, with guidance and of the conditional half.
template <class T>
struct Guided {
  const GuidanceParams<T>& p;
  int64_t n;
  ROCM_SD_DEVICE double conditional(int64_t i) const {
    return static_cast<double>(to_float(p.x[(p.images + n) * p.size + i]));
  }
  ROCM_SD_DEVICE double guided(int64_t i) const {
    const double plain = static_cast<double>(to_float(p.x[n * p.size + i]));
    return plain + p.scale * (conditional(i) - plain);
  }
};

}  // namespace steps

// Without rescale. Cfg::T is the storage type.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void guidance_body(const GuidanceParams<typename Cfg::T>& p, const Block<Arch>& block) {
  constexpr int kVec = 4;
  const int64_t all = p.images * p.size;
  steps::for_pieces<kVec>(block, all, [&](int64_t i, int count) {
    const auto plain = steps::load_some<kVec>(p.x + i, count, p.aligned != 0);
    const auto conditional = steps::load_some<kVec>(p.x + all + i, count, p.aligned != 0);
    Pack<float, kVec> y;
    for (int j = 0; j < kVec; ++j) {
      const auto a = static_cast<double>(to_float(plain.x[j]));
      y.x[j] = static_cast<float>(a + p.scale * (static_cast<double>(to_float(conditional.x[j])) - a));
    }
    steps::store_some(p.y + i, y, count, p.aligned != 0);
  });
}

// With rescale, first: workgroup `image * parts + part` measures one part of one image. lds: one double per
// wave.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void guidance_moments_body(const GuidanceParams<typename Cfg::T>& p, const Block<Arch>& block,
                                          double* lds) {
  const int64_t n = block.group() / p.parts, first = block.group() % p.parts * p.part;
  const int64_t count = p.size - first < p.part ? p.size - first : p.part;
  const auto sum = [&](const auto& value) {
    double own = 0;
    for (int64_t i = block.thread(); i < count; i += block.threads()) own += value(first + i);
    return group_sum(block, own, lds);
  };
  const auto measure = [&](const auto& value, double* moments) {
    const double mean = sum(value) / static_cast<double>(count);
    const double squares = sum([&](int64_t i) { return (value(i) - mean) * (value(i) - mean); });
    if (block.thread() == 0) moments[0] = mean, moments[1] = squares;
  };
  const steps::Guided<typename Cfg::T> values{p, n};
  measure([&](int64_t i) { return values.guided(i); }, p.moments + block.group() * 4);
  measure([&](int64_t i) { return values.conditional(i); }, p.moments + block.group() * 4 + 2);
}

// Then: each workgroup writes one part.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void guidance_rescaled_body(const GuidanceParams<typename Cfg::T>& p,
                                           const Block<Arch>& block) {
  const int64_t n = block.group() / p.parts, first = block.group() % p.parts * p.part;
  const int64_t end = p.size - first < p.part ? p.size : first + p.part;
  // Of what differs from the mean over the whole image, squared; which: 0 guided, 1 conditional.
  const auto squares = [&](int which) {
    const double* moments = p.moments + n * p.parts * 4 + which * 2;
    const auto count = [&](int64_t part) {
      const int64_t rest = p.size - part * p.part;
      return static_cast<double>(rest < p.part ? rest : p.part);
    };
    const double base = moments[0];
    const double shift =
        wave_sum_over_double(block, p.parts, [&](int64_t i) { return count(i) * (moments[4 * i] - base); }) /
        static_cast<double>(p.size);
    return wave_sum_over_double(block, p.parts, [&](int64_t i) {
      const double d = moments[4 * i] - base - shift;
      return moments[4 * i + 1] + count(i) * d * d;
    });
  };
  const double own = squares(0);
  double factor = 1;
  if (own != 0) factor = p.rescale * Arch::sqrt(squares(1) / own) + 1 - p.rescale;
  const steps::Guided<typename Cfg::T> values{p, n};
  for (int64_t i = first + block.thread(); i < end; i += block.threads())
    p.y[n * p.size + i] = static_cast<float>(factor * values.guided(i));
}

template <class T>
struct CountNonfiniteParams {
  const T* x;
  double* partial;  // [workgroups]
  int64_t* count;
  int64_t size;
  int32_t aligned;      // whether x lies at a multiple of 16 bytes
  uint32_t workgroups;  // of the grid
};

// Counts in double, which is exact up to 2^53. lds: one double per wave.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void count_nonfinite_body(const CountNonfiniteParams<typename Cfg::T>& p,
                                         const Block<Arch>& block, double* lds) {
  constexpr int kVec = 8;
  int own = 0;
  steps::for_pieces<kVec>(block, p.size, [&](int64_t i, int count) {
    const auto x = steps::load_some<kVec>(p.x + i, count, p.aligned != 0);  // zeros behind the end
    for (int j = 0; j < kVec; ++j) {
      const float value = to_float(x.x[j]);
      own += value - value == 0 ? 0 : 1;
    }
  });
  const double sum = group_sum(block, static_cast<double>(own), lds);
  if (block.thread() == 0) p.partial[block.group()] = sum;
}

// One wave: *count = the sum of partial.
template <class Arch, class T>
ROCM_SD_DEVICE void sum_counts_body(const CountNonfiniteParams<T>& p, const Block<Arch>& block) {
  const double sum = wave_sum_over_double(block, p.workgroups, [&](int64_t i) { return p.partial[i]; });
  if (block.lane() == 0) *p.count = static_cast<int64_t>(sum);
}

}  // namespace rocm_sd
