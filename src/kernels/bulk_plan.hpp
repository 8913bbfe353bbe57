// In which clusters the products of composable_kernels/fused/bulk.hpp run, and how long they may take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/gpu.hpp"

namespace rocm_sd {

// A configuration: 128 rows by so many columns, so many workgroups at once on a multiprocessor; turns: two
// tiles are under way in one.
struct BulkTile {
  int columns = 0, groups = 1;
  bool turns = false;
};

// Where the copy engine takes the rows of a step from.
enum class BulkRows {
  kMatrix,
  kGathered,  // pixels of a convolution, one by one
  kBoxes,     // pixels of a convolution, whole boxes
  kHalo,      // the same for all taps of a filter at once
};

// The product: of all layers that run beside each other.
struct BulkExtent {
  int64_t rows = 0, columns = 0, depth = 0;  // of one layer
  int64_t layers = 1;
  bool gated = false;  // columns are values and gates
  BulkRows from = BulkRows::kMatrix;
};

// A cluster: workgroups that share a tile of the weights, and parts of k.
struct BulkSplit {
  int sharers = 1, splits = 1;
};

// Clusters of so many workgroups, `groups` of which a multiprocessor holds, that run at the same time.
uint32_t bulk_clusters_at_once(const GpuTraits& traits, int groups, int workgroups);

// Those worth timing; may_split: whether the product can be summed from parts.
std::vector<BulkSplit> bulk_splits(const GpuTraits& traits, const BulkTile& tile, const BulkExtent& extent,
                                   bool may_split);

// An estimate in nanoseconds, to compare choices by.
double bulk_ns(const GpuTraits& traits, const BulkTile& tile, const BulkExtent& extent, BulkSplit split);

}  // namespace rocm_sd
