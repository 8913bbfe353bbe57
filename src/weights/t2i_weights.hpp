// A T2I-Adapter's file: Diffusers' folder or single file, or the original names (TencentARC's), under
// Diffusers' names.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weights/store.hpp"

namespace rocm_sd {

struct T2iWeights {
  WeightStore store;                             // titled "t2i-adapter of NAME"
  std::shared_ptr<const nlohmann::json> config;  // with the keys of T2IAdapter's config.json
};

// Whether a file holds an adapter that open_t2i_adapter reads.
bool holds_t2i_adapter(const TensorSet& tensors);

// Of tensors that are open. config: of the file's folder, or null: told from the shapes, by which sizes of
// 16 x 16 squares are SDXL's. Throws FormatError for names that no adapter has and numbers that are missing.
T2iWeights t2i_of(const TensorSet& tensors, std::shared_ptr<const nlohmann::json> config);

}  // namespace rocm_sd
