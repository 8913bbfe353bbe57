// The loaded parts of a checkpoint, ready to run.
#pragma once

#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/clip.hpp"
#include "models/low_rank_terms.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"
#include "pipeline/adapters.hpp"
#include "pipeline/controls.hpp"
#include "pipeline/image_models.hpp"
#include "pipeline/placement.hpp"
#include "rocm_sd/pipeline.hpp"
#include "runtime/exec.hpp"
#include "runtime/ranks.hpp"
#include "schedulers/diffusers_config.hpp"
#include "text/chunks.hpp"
#include "weights/checkpoint.hpp"

namespace rocm_sd {

struct TextEncoder {
  Component component = Component::kTextEncoder;
  ClipTextModel model;
  ClipTokenizer tokenizer;
  int32_t pad_id = 0;
  bool pooled = false;  // its projection conditions the UNet (SDXL's last encoder)
  int native_skip = 0;  // layers that the model itself leaves out (SDXL: 1)
  bool final_norm = true;
  bool masks_padding = false;
};

struct Components {
  ModelKind kind = ModelKind::kSd1;
  PerPart<DType> dtypes;          // asked for; a model that overflowed may compute in a wider one
  WeightFormat weights;           // how the UNet's matrices and filters are stored
  bool weights_are_auto = false;  // nobody asked for a form of them
  WeightFormat vae_weights;       // the VAE's
  Placement place;
  LayerRange layers;              // of the UNet, that this rank has
  TensorShare share;              // of each of its attentions and feed-forwards
  Device* device = nullptr;       // the UNet's, and the sampler's
  std::vector<TextEncoder> text;  // in the order of the UNet's context columns
  std::optional<UNet> unet;
  std::optional<VaeDecoder> vae;         // absent where the model's own VAE is an AutoencoderTiny
  std::optional<TaesdDecoder> tiny_vae;  // decodes in place of the VAE, or is it
  NoiseScheduleArgs noise;
  Prediction prediction = Prediction::kEpsilon;
  std::optional<SamplingRequest> native_sampling;  // what scheduler_config.json asks for
  std::string sampling_refusal;  // why native_sampling is not what scheduler_config.json asks for
  double sigma_data = 0;         // more than 0: EDM's preconditioning
  ModelInfo info;
  std::string vae_name;  // of a replaced VAE, for the receipt
  // SHA-256 of a single-file checkpoint and of a replaced VAE, computed beside the first picture; not valid
  // for folders.
  std::shared_future<std::string> model_hash, vae_hash;
  bool zero_absent_negative = false;  // without a negative prompt its states are zeros (SDXL base)
  std::string distilled;              // what tells that the model needs no guidance; empty: nothing does

  LoadTarget load_target(Part part) const { return {loading_device(part), place[part]}; }
  Device& loading_device(Part part) const { return loaded_for_offload ? host_device() : place[part]; }
  int64_t downscale() const { return vae ? vae->config().downscale() : tiny_vae->config().downscale(); }
  // LCM: the scale of guidance is an input of the UNet, and nothing is guided beside it.
  bool takes_guidance() const { return unet->config().time_cond_width > 0; }
  bool is_sdxl() const { return kind == ModelKind::kSdxl || kind == ModelKind::kSdxlRefiner; }
  bool is_inpainting() const { return unet->config().in_channels == 9; }
  bool is_instruct() const { return unet->config().in_channels == 8; }
  bool is_depth() const { return unet->config().in_channels == 5; }

  // Loads the VAE's encoder unless it is there: text to image does without it. In the VAE's type.
  void need_encoder();
  bool has_encoder() const { return loaded_encoder || loaded_tiny_encoder; }
  // Reads the part's weights again, for another compute type. The models stay where they are.
  void reload(Part part, DType compute);
  // Makes anew what `before` or the adapters at work change: on a GPU by its own products where it can, else
  // on the host from the weights as they were. The weights hold `before` and lie in the memory of `to`. The
  // files are read for layers alone whose weights in use are not the file's to the bit, once.
  void update(Part part, const std::vector<ActiveAdapter>& before, Device& to);
  DType dtype_of(Part part) const;
  std::string describe_dtype() const;  // "bf16, text f16, unet weights int8": the UNet's, then what differs

  std::vector<ActiveAdapter> adapters;  // merged into every weight that is read
  AdapterBases bases;                   // of weights that adapters changed on the device
  std::shared_ptr<OriginalWeights> originals = std::make_shared<OriginalWeights>();  // on the host
  // Those at work at run time, as terms beside the weights; how strongly is RowStrengths'.
  std::vector<ActiveAdapter> runtime_adapters;
  void set_runtime_adapters(std::vector<ActiveAdapter> adapters);
  // Whether all rows of the component's batch have the same strengths -> whether that is new: what was
  // planned must then be planned anew.
  bool set_strengths_alike(Component component, bool alike);
  // Gives the part's layers their terms where they have others -> whether it did. Its weights are on the
  // device. Throws OutOfMemoryError.
  bool refresh_terms(Part part);
  // Strengths of a component's terms on each row of its batch; null where there are none.
  RowStrengths* row_strengths(Component component) const;
  uint64_t term_bytes(Part part) const;
  uint64_t base_bytes(Part part) const;  // of `bases`
  // ControlNets that are loaded: weights of Part::kUnet, which reload() reads again, too.
  std::vector<std::shared_ptr<LoadedControl>> controls;
  // A ControlNet of this file: one that is loaded and has not changed since, else opened anew, without its
  // weights.
  std::shared_ptr<LoadedControl> find_control(const std::filesystem::path& path) const;
  void load_control(LoadedControl& control) const;
  ControlFiles control_files;
  // IP-Adapters and image encoders that are loaded: weights of Part::kImage, of these types.
  std::vector<std::shared_ptr<LoadedImageModel>> image_models;
  DType image_dtype = DType::kF32, image_stored = DType::kF32;
  // Of this file: one that is loaded and has not changed since, else opened anew, without its weights.
  std::shared_ptr<LoadedImageModel> find_adapter(const std::filesystem::path& path) const;
  std::shared_ptr<LoadedImageModel> find_encoder(const std::filesystem::path& path) const;
  // The encoder that the adapter reads: of `asked`, or, where that is empty, the first beside it that fits.
  // Throws UsageError for none.
  std::shared_ptr<LoadedImageModel> encoder_of(const LoadedImageModel& adapter,
                                               const std::string& asked) const;
  void load_image_model(LoadedImageModel& model) const;
  bool loaded_for_offload = false;  // weights lie in host memory until a stage needs them
  std::optional<Checkpoint> checkpoint;
  std::optional<VaeEncoder> loaded_encoder;
  std::optional<TaesdEncoder> loaded_tiny_encoder;  // where there is no other

 private:
  class Source;
  std::map<Component, std::shared_ptr<RowStrengths>> row_strengths_;
  PerPart<bool> stale_terms_;
};

// Opens the checkpoint, reads its configurations and loads every weight, with options.offload into host
// memory. The devices must outlive the result.
// Throws UsageError for bad options, FileError, FormatError and ShapeError for bad files.
// ranks: null, or those with whom the UNet's layers may be divided.
Components load_components(const LoadOptions& options, const Placement& place, const Callbacks& callbacks,
                           const Ranks* ranks = nullptr);

}  // namespace rocm_sd
