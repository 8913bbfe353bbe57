// The problems behind group_bands.hpp, and their implementations.
#pragma once

#include <array>

#include "kernels/norm/group_bands.hpp"
#include "kernels/problem.hpp"

namespace rocm_sd {

// Of a shape: nothing for one image, whose tables were made without it.
inline std::string of_images(int64_t images) { return images > 1 ? concat(images, ",") : ""; }

struct GroupMomentsProblem {
  const void* x = nullptr;  // [images, pixels, channels]
  float* out = nullptr;     // of each image [rows, groups, 3]
  int64_t images = 1, pixels = 0, channels = 0, groups = 1, rows = 1;
  int64_t out_step = 0;  // from one image's moments to the next one's
  DType dtype = DType::kF32;
  bool aligned = true;  // x begins at a multiple of 16 bytes; known while planning

  // Row r has the pixels begin(r) to begin(r + 1) of its image.
  int64_t begin(int64_t row) const { return pixels * row / rows; }
  const char* op() const { return "group_moments"; }
  std::string describe() const {
    return concat(dtype, " [", of_images(images), pixels, ",", channels, "] groups ", groups);
  }
  double flops() const { return 4.0 * static_cast<double>(images * pixels * channels); }
  double bytes() const {
    return static_cast<double>(images * pixels * channels) * static_cast<double>(dtype_size(dtype));
  }
};

struct GroupScaleProblem {
  const float* moments = nullptr;  // [images, rows, groups, 3]
  const float* gain = nullptr;     // [channels]
  float* out = nullptr;            // [images, 2, channels]
  int64_t images = 1, rows = 0, channels = 0, groups = 1;
  float eps = 0;

  const char* op() const { return "group_scale"; }
  std::string describe() const {
    return concat("[", of_images(images), rows, ",", groups, "] channels ", channels);
  }
  double flops() const { return 8.0 * static_cast<double>(images * rows * groups); }
  double bytes() const { return 4.0 * static_cast<double>(images * (3 * rows * groups + 3 * channels)); }
};

struct NormaliseProblem {
  // A part of the map; of 0 pixels: none.
  struct Source {
    const void* x = nullptr;  // [images, pixels, channels]
    int64_t pixels = 0;
  };
  Source above, map, below;
  const float* scale = nullptr;  // [images, 2, channels]
  const float* bias = nullptr;   // [channels]
  void* y = nullptr;             // [images, all_pixels, channels]
  int64_t images = 1, channels = 0;
  bool silu = false;
  DType dtype = DType::kF32;
  bool aligned = true;  // all begin at multiples of 16 bytes; known while planning

  std::array<Source, 3> sources() const { return {above, map, below}; }  // in their order in y
  int64_t all_pixels() const { return above.pixels + map.pixels + below.pixels; }
  const char* op() const { return "normalise_channels"; }
  std::string describe() const {
    const int64_t edges = above.pixels + below.pixels;
    return concat(dtype, " [", of_images(images), map.pixels, ",", channels, "]",
                  edges > 0 ? concat(" beside ", edges) : "", silu ? " silu" : "");
  }
  double flops() const { return 4.0 * static_cast<double>(images * all_pixels() * channels); }
  double bytes() const {
    return 2.0 * static_cast<double>(images * all_pixels() * channels) *
           static_cast<double>(dtype_size(dtype));
  }
};

Refusal supports_group_moments_gpu(const Exec& ex, const GroupMomentsProblem& p);
void run_group_moments_gpu(Exec& ex, const GroupMomentsProblem& p);
Refusal supports_group_moments_scalar(const Exec& ex, const GroupMomentsProblem& p);
void run_group_moments_host(Exec& ex, const GroupMomentsProblem& p);
void run_group_moments_scalar(Exec& ex, const GroupMomentsProblem& p);
void run_group_moments_ref(Exec& ex, const GroupMomentsProblem& p);

Refusal supports_group_scale_gpu(const Exec& ex, const GroupScaleProblem& p);
void run_group_scale_gpu(Exec& ex, const GroupScaleProblem& p);
void run_group_scale_scalar(Exec& ex, const GroupScaleProblem& p);
void run_group_scale_ref(Exec& ex, const GroupScaleProblem& p);

Refusal supports_normalise_gpu(const Exec& ex, const NormaliseProblem& p);
void run_normalise_gpu(Exec& ex, const NormaliseProblem& p);
void run_normalise_host(Exec& ex, const NormaliseProblem& p);
void run_normalise_scalar(Exec& ex, const NormaliseProblem& p);
void run_normalise_ref(Exec& ex, const NormaliseProblem& p);

}  // namespace rocm_sd
