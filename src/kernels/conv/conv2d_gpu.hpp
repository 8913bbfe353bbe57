// The host's side of the GPU's convolution: how a problem is cut into workgroups, and the filters' layout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "composable_kernels/families/gemm_config.hpp"
#include "composable_kernels/fused/conv_layout.hpp"
#include "composable_kernels/tile/pixel_boxes.hpp"
#include "kernels/conv/conv2d_configs.hpp"
#include "kernels/conv/conv2d_impl.hpp"
#include "kernels/family/explanation.hpp"
#include "kernels/family/gemm_map.hpp"
#include "kernels/shared_tiles.hpp"
#include "kernels/tma_plan.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

// One way to compute a problem: a configuration, and the parts of k that are summed apart and then together.
struct ConvChoice {
  GemmConfig config;
  int splits = 1;          // tma: within a cluster
  int multicast_size = 1;  // tma: workgroups of a cluster that share a tile of the filter
  SharedTileSet split_tiles = SharedTileSet::kAll;  // which have splits
};
// "128x160x64g/4": 4 splits; "128x160x32/4r": of the tiles of the last round alone; "128x160x64b2/1": 2
// multicast_size
std::string describe(const ConvChoice& choice);

// What the choice depends on: an implicit GEMM of pixels x outputs x depth, in elements of `dtype`; of all
// phases together.
struct ConvExtent {
  int64_t pixels = 0, outputs = 0, depth = 0;
  DType dtype = DType::kF16;
  int64_t phases = 1;             // whose pixels `pixels` counts together
  bool whole_steps = false;       // each of 32 channels of one input
  bool whole_blocks = false;      // TMA may fetch it (hopper/convolution_tma.hpp)
  int64_t boxed_pixels = 0;       // of a phase, as TMA takes them in boxes; 0: it gathers them
  int64_t halo_pixels = 0;        // and in boxes with halos; 0: not so
  int64_t resident_channels = 0;  // of an input whose filter LDS may hold (hopper/convolution_resident.hpp);
                                  // 0: none
};

// As TMA takes the pixels: of one phase where there are several.
TmaExtent tma_extent(const ConvExtent& e, const GemmConfig& config);

std::vector<GemmConfig> conv_configs_of(const GpuTraits& traits, DType dtype);
// Every choice worth timing, the default first.
std::vector<ConvChoice> conv_candidates(const GpuTraits& traits, const ConvExtent& extent);
// Why the choice takes the problem, and its estimated time: of algorithms of one rank the least is taken.
struct ConvReason {
  const GemmMapRow* row = nullptr;
  double ns = 0;
};
ConvReason reason_of(const GpuTraits& traits, const ConvExtent& extent, const ConvChoice& choice);
Explanation conv_explanation(const GpuTraits& traits, const ConvExtent& extent);
// A decent choice without timing: from the rounds that its workgroups take on the device's compute units.
ConvChoice conv_default(const GpuTraits& traits, const ConvExtent& extent);

ConvExtent conv_extent(const ConvProblem& p);
// Boxes of the outputs, of one phase where there are several, as TMA fetches the pixels under them;
// none where it gathers them faster.
std::optional<PixelBoxes> conv_boxes(const ConvProblem& p);
// The same as a halo serves all taps of a filter.
std::optional<PixelBoxes> conv_halo_boxes(const ConvProblem& p);
// "conv_f16_128x128x32", "conv_wgmma_f16_128x160x64"
std::string conv_kernel_name(DType dtype, const GemmConfig& config);

Refusal conv2d_supports_gpu(const Exec& ex, const ConvProblem& p);
void conv2d_gpu(Exec& ex, const ConvProblem& p);  // by the default choice
// By this one, for tuners and tests. Throws UsageError where the device has no such kernel.
void conv2d_gpu_by(Exec& ex, const ConvProblem& p, const ConvChoice& choice);
extern const Configs<ConvProblem> kConvGpuConfigs;  // by describe(choice)

// How a filter [K,C,R,S] is packed whose first channels are those of x, the others the second input's.
FilterLayout conv_packed_layout(const Shape& shape, int64_t first_channels, DType dtype);

// A filter [K,C,R,S] as the gather walks it: [K][(input, block of channels, r, s, c)], each input's channels
// padded to whole pieces of 16 bytes of `dtype`. Made on the device by a small kernel, from a filter on the
// device in dtype or in 8 bits, and in the same type.
class GpuFilter final : public Weight::Pack {
 public:
  // kDense: one block of channels for each tap, [K][(r, s, c)], as other libraries take it.
  enum class Order { kBlocks, kDense };
  GpuFilter(GpuDevice& device, const Tensor& plain, int64_t first_channels, DType dtype,
            Order order = Order::kBlocks);
  size_t bytes() const override { return data_.bytes(); }
  Tensor unpack() const override;
  const Tensor& packed() const { return data_; }
  FilterLayout layout() const;

 private:
  GpuDevice& device_;
  Shape shape_;
  int64_t first_channels_;
  DType dtype_;
  Order order_;
  Tensor data_;  // [K, depth]
};

// A 3x3 filter on a doubled image as four 2x2 filters on the image: 4/9 of the products. The plain filter
// cannot be had back from it.
class GpuPhaseFilter final : public Weight::Pack {
 public:
  GpuPhaseFilter(GpuDevice& device, const Tensor& plain);
  size_t bytes() const override { return data_.bytes(); }
  Tensor unpack() const override;  // throws InternalError
  const void* data() const { return data_.data(); }

 private:
  Tensor data_;  // [4, K, 4 C']
};

// The same from a packed filter in 8 bits, made anew for every run: [4, K, 4 C'] of dtype, the arena's.
Tensor dequantize_phases(Exec& ex, const GpuFilter& filter, const Tensor& scales, DType dtype);

// Whether the problem is computed so: one input, doubled, 3x3, stride 1, padded by 1.
bool conv_has_phases(const ConvProblem& p);

// Channels as the kernels read them: a multiple of 16 bytes.
int64_t conv_padded_channels(int64_t channels, DType dtype);

}  // namespace rocm_sd
