// The tensors of a component as a converter writes them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "weights/checkpoint.hpp"

namespace rocm_sd {

// Canonical names that belong in a written component: what the configuration does not run (SD 2's last text
// layer, the projection of a CLIPTextModel) is left out.
std::vector<std::string> written_names(const WeightStore& store, const nlohmann::json& config);

// Weights that are written with other values than the store's: LoRAs are merged into them.
class ChangedWeights {
 public:
  virtual ~ChangedWeights() = default;
  virtual bool changes(Component component, const std::string& name) const = 0;
  // Elements [begin, begin + count) of the changed tensor, as WeightStore::read_part gives the plain one's.
  virtual void read(Component component, const std::string& name, const Shape& shape, int64_t begin,
                    int64_t count, DType dtype, void* dst) const = 0;
};

// The tensors under Diffusers' or LDM names, in type `dtype` where they are floats; with `changed` (may be
// null) in place of the store's own. Both must outlive the result. Attention of the VAE is linear in
// Diffusers and a 1x1 convolution in LDM files. Throws FormatError for a tensor that the LDM layout cannot
// hold.
std::vector<TensorToWrite> diffusers_tensors(const WeightStore& store, const nlohmann::json& config,
                                             std::optional<DType> dtype,
                                             const ChangedWeights* changed = nullptr);
std::vector<TensorToWrite> ldm_tensors(const WeightStore& store, const nlohmann::json& config, ModelKind kind,
                                       std::optional<DType> dtype, const ChangedWeights* changed = nullptr);

}  // namespace rocm_sd
