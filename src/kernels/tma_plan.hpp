// In which clusters the products of composable_kernels/hopper/tma_body.hpp run, and how long they may take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "composable_kernels/families/gemm_config.hpp"
#include "kernels/family/cost_model.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

// The product: of all layers that run beside each other.
struct TmaExtent {
  int64_t rows = 0, columns = 0, depth = 0;  // of one layer
  int64_t layers = 1;
  bool gated = false;  // columns are values and gates
  TmaRows from = TmaRows::kMatrix;
};

// A cluster: workgroups that share a tile of the weights, and parts of k.
struct TmaSplit {
  int multicast_size = 1, splits = 1;
};

// Clusters of so many workgroups, `occupancy` of which a compute unit holds, that run at the same time.
uint32_t tma_clusters_at_once(const GpuTraits& traits, int occupancy, int workgroups);

// Those worth timing for a configuration that uses TMA; may_split: whether the product can be summed from
// parts.
std::vector<TmaSplit> tma_splits(const GpuTraits& traits, const GemmConfig& tile, const TmaExtent& extent,
                                 bool may_split);

// Workgroups of a convolution that keeps its filter in LDS: as many for each piece of the outputs of each
// layer.
uint32_t resident_workgroups(const GpuTraits& traits, const GemmConfig& tile, const TmaExtent& extent);
double resident_ns(const GpuTraits& traits, const GemmConfig& tile, const TmaExtent& extent);

// An estimate in nanoseconds, to compare choices by.
double tma_ns(const GpuTraits& traits, const GemmConfig& tile, const TmaExtent& extent, TmaSplit split);

}  // namespace rocm_sd
