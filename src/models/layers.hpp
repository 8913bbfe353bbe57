// Layers with parameters: what an op needs (its weight struct) plus the shape that the checkpoint must have.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/weight.hpp"
#include "models/cut.hpp"

namespace rocm_sd {

struct LowRank;                                       // low_rank.hpp
using LowRankTerms = std::shared_ptr<const LowRank>;  // of run-time LoRAs; null: none

struct Linear : LinearWeight {
  int64_t in = 0, out = 0;
  bool biased = true;
  LowRankTerms low_rank = {};
  CutPart cut = {};  // of a rank that has a share of the layer

  Linear() = default;
  Linear(int64_t in_features, int64_t out_features, bool with_bias = true)
      : in(in_features), out(out_features), biased(with_bias) {}
};

// Several matrices of the checkpoint over one input, stored as one: rows of the first part, then of the
// second. One product then serves query, key and value, or every time projection of a UNet.
struct StackedLinear : LinearWeight {
  struct Part {
    std::string name;  // relative to the layer that visits it: "to_q"
    int64_t rows = 0;
    CutPart cut = {};
  };
  int64_t in = 0;
  std::vector<Part> parts;
  bool biased = true;

  std::string name = "stacked";  // of the whole, as patterns of precisions know it: "to_kv"
  LowRankTerms low_rank = {};

  StackedLinear() = default;
  StackedLinear(int64_t in_features, std::vector<Part> stacked, bool with_bias,
                std::string of_whole = "stacked")
      : in(in_features), parts(std::move(stacked)), biased(with_bias), name(std::move(of_whole)) {}
  int64_t rows() const {
    int64_t sum = 0;
    for (const Part& part : parts) sum += part.rows;
    return sum;
  }
};

struct Conv : ConvWeight {
  int64_t in = 0, out = 0;
  int kernel = 3;  // square
  bool biased = true;
  LowRankTerms low_rank = {};

  Conv() = default;
  Conv(int64_t in_channels, int64_t out_channels, int kernel_size = 3, bool with_bias = true)
      : in(in_channels), out(out_channels), kernel(kernel_size), biased(with_bias) {}
};

// Above 1 where the layer's weight is stored as Precision::kSplitInput or kSplit says: the layer then takes
// split_bf16 of its input in so many parts.
template <class Layer>
int64_t parts_of(const Layer& layer) {
  return layer.weight.dim(1) / layer.in;
}
template <class Layer>
bool is_split(const Layer& layer) {
  return parts_of(layer) > 1;
}

struct Norm : NormWeight {
  int64_t channels = 0;
  float eps = 1e-5f;

  Norm() = default;
  explicit Norm(int64_t width, float epsilon = 1e-5f) : channels(width), eps(epsilon) {}
};

struct Embedding : EmbeddingWeight {
  int64_t rows = 0, channels = 0;

  Embedding() = default;
  Embedding(int64_t entries, int64_t width) : rows(entries), channels(width) {}
};

}  // namespace rocm_sd
