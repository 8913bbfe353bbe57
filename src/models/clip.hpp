// ClipTextModel: token ids to hidden states and, for SDXL, a pooled embedding (CLIP's text transformer:
// Radford et al., "Learning Transferable Visual Models", 2021; OpenCLIP's is the same with GELU).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "models/configs.hpp"
#include "models/parameters.hpp"
#include "models/tap.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

struct ClipLayer {
  Norm norm1, norm2;
  StackedLinear qkv;
  Linear out, fc1, fc2;

  explicit ClipLayer(const ClipConfig& config);
  void visit(Visitor& v);
  // x [B,T,C] -> [B,T,C]
  // mask: additive, or null
  Tensor operator()(Exec& ex, const Tensor& x, const ClipConfig& config, const Tensor* mask) const;
};

struct ClipArgs {
  // Layers left out at the end: the states come from after layer (layers - skip). A1111's "Clip skip" n is
  // skip = n - 1; SDXL's encoders use skip = 1 at least.
  int skip = 0;
  bool final_norm = true;  // apply final_layer_norm to the states (SD 1, SD 2); SDXL does not
  const Tensor* pooled_rows =
      nullptr;  // [P,1] i32 on the device: rows of [B*T] to pool (see pooled_rows()); null: no pooled output
  const Tensor* mask = nullptr;  // [B,1,1,T] f32, added to every layer's scores beside the causal mask
  const Tap* tap = nullptr;      // "embeddings", "layers.0", ...
  // Vectors that stand in place of rows of the vocabulary (textual inversion), both or none: vectors [E,C] in
  // table_dtype(); rows [B,T] i32: B*T + i for vector i, b*T + t where ids[b,t] counts.
  const Tensor *vectors = nullptr, *rows = nullptr;
};

struct ClipOutput {
  Tensor states;  // [B,T,C]
  Tensor pooled;  // [P,projection] where the model has one, else [P,C]; empty unless asked for
};

class ClipTextModel {
 public:
  explicit ClipTextModel(const ClipConfig& config);
  // Throws what load_parameters throws.
  // stored: what matrices and tables are stored in; the compute dtype, or 16 bits with f32 on the host.
  static ClipTextModel load(Device& device, const ClipConfig& config, const ParameterSource& source,
                            DType compute, DType stored);
  static ClipTextModel load(Device& device, const ClipConfig& config, const ParameterSource& source,
                            DType compute) {
    return load(device, config, source, compute, compute);
  }

  // Reads parameters of a loaded model again, those that `only` names or all, as load() did.
  void update(Device& device, const ParameterSource& source, const SlotFilter& only = {});

  const ClipConfig& config() const { return config_; }
  DType stored() const { return stored_; }
  DType dtype() const { return dtype_; }
  DType table_dtype() const { return tokens_.table.dtype(); }  // of the vocabulary
  void visit(Visitor& v);

  // ids [B,T] i32 in device memory, T <= config.positions; each 77-token chunk of a prompt is a row. Ids must
  // be below config.vocabulary (check_ids). Results are the arena's, in the compute dtype. Throws UsageError
  // if skip is not below the number of layers.
  ClipOutput operator()(Exec& ex, const Tensor& ids, const ClipArgs& args = {}) const;

 private:
  Tensor embed(Exec& ex, const Tensor& ids, const ClipArgs& args) const;

  ClipConfig config_;
  DType dtype_ = DType::kF32, stored_ = DType::kF32;
  Embedding tokens_, positions_;
  std::vector<ClipLayer> layers_;
  Norm final_norm_;
  std::optional<Linear> projection_;
};

// The row of each sequence whose state is the pooled one, as an index into [B*T]: the first token with
// config.eos_token_id (0 where there is none, as transformers has it), or the highest id in the legacy case.
// ids: B rows of `tokens` ids.
std::vector<int32_t> pooled_rows(const ClipConfig& config, std::span<const int32_t> ids, int64_t tokens);

// Throws UsageError naming the first id outside 0..vocabulary-1.
void check_ids(const ClipConfig& config, std::span<const int32_t> ids);

}  // namespace rocm_sd
