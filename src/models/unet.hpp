// UNet: predicts the noise (or v, or the picture) in latents, given timesteps and text states
// (Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models", 2022; SDXL: Podell et al.,
// 2023).
#pragma once

#include <optional>
#include <vector>

#include "models/freeu.hpp"
#include "models/scaled_map.hpp"
#include "models/unet_blocks.hpp"
#include "models/unet_layers.hpp"

namespace rocm_sd {

// Keys and values of the text for every cross attention, made once per prompt. Persistent tensors.
struct TextCache {
  std::vector<Tensor> keys_values;  // [B,T,2C] each
};

// A cross attention that reads images beside the text (every attn2).
struct ImageAttention {
  std::string name;    // "down_blocks.0.attentions.0.transformer_blocks.0.attn2"
  int64_t width = 0;   // of its keys
  int64_t number = 0;  // that IP-Adapters' files give it: 1, 3, 5, ... down, up, middle
  int64_t level = 0;   // how often the latents were halved before it
};

// What the time embedding is made of. All in device memory.
struct TimeInputs {
  Tensor timestep;       // [B] f32
  Tensor text_embeds;    // [B,config.added_width - ids * added_time_width] (SDXL: 1280); else empty
  Tensor time_ids;       // [B,ids] f32 (SDXL: 6, refiner: 5); else empty, also where text_embeds has all of
                         // added_width, the ids embedded
  Tensor guidance_cond;  // [B,config.time_cond_width] (LCM), or empty: zero
  Tensor added = {};     // [B,config.time_width] of the compute dtype, or empty: what else the embedding sums
};

// What the way down leaves for the way up. Maps of input_dtype().
struct UNetSkips {
  std::vector<Tensor> skips;  // [B,h,w,C] each in the order of running, that of conv_in first
  Tensor middle;              // what the way up begins with: the middle block's result
};

struct UNetArgs {
  const Tap* tap = nullptr;  // "conv_in", "down_blocks.0.resnets.0", "down_blocks.0", "mid_block", ...
  // Added to the skips and to the middle (ControlNet, T2I-Adapter): of their number, shapes and type.
  const UNetSkips* residuals = nullptr;
  // Images at the batch's end whose self attention is the identity (perturbed-attention guidance) in these
  // layers: a flag for each of self_attentions(); null: those of the middle block.
  int64_t perturbed = 0;
  const std::vector<bool>* perturbed_layers = nullptr;
  const FreeU* freeu = nullptr;  // of the way up
  // Filled by the middle block's first self attention, of encode(); null: not.
  const AttentionReceived* received = nullptr;
  const Tensor* conv_in_residual = nullptr;  // added to what conv_in makes: [B,h,w,C0] in input_dtype()
  // Of T2I-Adapters: added to what each down block makes, before its downsampler where it has attention, else
  // at its end, and after the last of them to what the middle block makes. Empty lists: nothing.
  const std::vector<std::vector<ScaledMap>>* additions = nullptr;
  // Read by every attn2 beside the text (IP-Adapter). encode() and decode() get the same; null: none.
  const std::vector<ImageTokens>* images = nullptr;
  // Both halves get the same; null: none. Where `deep` is reused, encode() ends at its skip, without a
  // middle, and takes no residuals.
  const DeepMap* deep = nullptr;
  const TextGate* gate = nullptr;
  // That have the other shares of a UNet which was loaded with one; null: it is whole.
  Ranks* ranks = nullptr;
  const TokenMerge* merge = nullptr;  // of both halves; null: none
};

// Without up blocks in its configuration it is the half that encode() runs: what a ControlNet is a copy of.
class UNet {
 public:
  explicit UNet(const UNetConfig& config);
  // own: the layers that are loaded and that visit() names, for run_layers(). share: the heads and the
  // feed-forward's channels that are loaded, for UNetArgs::ranks. Throws what load_parameters throws.
  static UNet load(const LoadTarget& target, const UNetConfig& config, const ParameterSource& source,
                   DType compute, const WeightFormat& weights = {}, const LayerRange& own = {},
                   const TensorShare& share = {});
  // Reads parameters of a loaded model again, those that `only` names or all, as load() did. What was planned
  // or captured with the model must be planned anew.
  void update(const LoadTarget& target, const ParameterSource& source, const WeightFormat& weights,
              const SlotFilter& only = {});

  // What load() does before it reads, for a model that this one is a part of: settles the types, and says how
  // its weights are stored then.
  void choose_types(const LoadTarget& target, DType compute, const WeightFormat& weights);
  WeightFormat format_of(const WeightFormat& weights) const;
  // Which of its layers a model in bf16 computes with more bits.
  std::vector<PrecisionRow> precisions() const;

  const UNetConfig& config() const { return config_; }
  // The type that it was loaded as: of its matrices.
  DType dtype() const { return loaded_as_; }
  // The type of its time shifts and products: dtype(), or f32 where that is bf16 and the CPU multiplies f32
  // at least as fast.
  DType compute_dtype() const { return dtype_; }
  // Of latents, text states and the prediction: the compute dtype, or f32 where that is bf16, of which 8 bits
  // would show in a picture.
  DType input_dtype() const { return dtype_ == DType::kBF16 ? DType::kF32 : dtype_; }
  // Of the text's and the images' keys and values, and of the attention over them.
  DType text_dtype() const;
  void visit(Visitor& v);

  // Persistent, uninitialised memory for the text of `batch` pictures, `tokens` tokens each; none for layers
  // that other ranks have.
  TextCache make_text_cache(Device& device, int64_t batch, int64_t tokens) const;
  // Fills the cache. states [B,T,context width] in input_dtype() or the compute dtype.
  void prepare_text(Exec& ex, const Tensor& states, const TextCache& cache) const;

  // The shifts that the time embedding adds in every residual block: [B,time_channels()] in the compute
  // dtype, the arena's. They depend on the timestep and, for SDXL, on the pooled text, not on the latents: a
  // schedule's shifts can be made before the loop. Throws ShapeError where an input that the model needs is
  // missing or has another width.
  Tensor time_shifts(Exec& ex, const TimeInputs& inputs) const;
  int64_t time_channels() const { return time_projections_.rows(); }
  // Diffusers' names of its self attentions in the order of running: "down_blocks.0.attentions.0.
  // transformer_blocks.0.attn1".
  const std::vector<std::string>& self_attentions() const { return self_attentions_; }
  // Of the middle block's first self attention. Nothing where it has none.
  std::optional<size_t> middle_self_attention() const;
  // Memory for UNetArgs::received of latents [B,height,width,.]. Throws UsageError where there is no such
  // layer.
  AttentionReceived make_received(Device& device, int64_t images, int64_t height, int64_t width) const;
  // The sum over all queries of the attention that each pixel of the middle block gets, the mean of the
  // heads: [images][h*w] for a map [h,w] with h = height halved as often as the UNet does. Waits for the
  // device.
  std::vector<std::vector<float>> attention_sums(Device& device, const AttentionReceived& received,
                                                 int64_t height, int64_t width) const;
  size_t skip_count() const;     // skip connections, conv_in's among them
  int64_t middle_level() const;  // how often the latents were halved before the middle block
  // In the order of running.
  const std::vector<ImageAttention>& image_attentions() const { return image_attentions_; }

  // latents [B,h,w,in_channels] in input_dtype() or the compute dtype, any h, w >= 1; shifts
  // [B,time_channels()] -> prediction [B,h,w,out_channels] in input_dtype(). Reads device memory by pointer
  // only: it can be planned and captured.
  Tensor operator()(Exec& ex, const Tensor& latents, const Tensor& shifts, const TextCache& text,
                    const UNetArgs& args = {}) const;
  // Its two halves: conv_in to the middle block, and the way up. args.residuals are the first half's.
  UNetSkips encode(Exec& ex, const Tensor& latents, const Tensor& shifts, const TextCache& text,
                   const UNetArgs& args = {}) const;
  Tensor decode(Exec& ex, UNetSkips skips, const Tensor& shifts, const TextCache& text,
                const UNetArgs& args = {}) const;
  // The layers that were loaded, of a UNet on several ranks. x: what the first of them reads. skips: one for
  // each skip connection; those that the layers take are there, and those that they give are put there.
  // height, width: of the latents. Of args it takes perturbed, freeu and images.
  Tensor run_layers(Exec& ex, Tensor x, std::vector<Tensor>& skips, int64_t height, int64_t width,
                    const Tensor& shifts, const TextCache& text, const UNetArgs& args = {}) const;
  const LayerRange& own_layers() const { return own_; }
  const TensorShare& share() const { return share_; }
  // All in one.
  Tensor operator()(Exec& ex, const Tensor& latents, const TimeInputs& time, const TextCache& text,
                    const UNetArgs& args = {}) const {
    return (*this)(ex, latents, time_shifts(ex, time), text, args);
  }

 private:
  UNetContext context(const Tensor& shifts, const TextCache& text, const UNetArgs& args) const;
  Tensor first_map(Exec& ex, const Tensor& latents, const Tensor* residual) const;
  Tensor prediction(Exec& ex, Tensor x) const;
  void keep_layers(const LayerRange& own, const ParameterSource& source);
  void keep_share(const TensorShare& share, const ParameterSource& source);
  void ignore_others(const ParameterSource& source);
  Tensor edge_conv(Exec& ex, Tensor x, const Conv& layer, const Tensor* residual = nullptr) const;
  bool takes(DType dtype) const { return dtype == loaded_as_ || dtype == dtype_ || dtype == input_dtype(); }
  void number_layers();
  void number_image_attentions();
  std::vector<CrossAttention*> cross_attentions();  // in order of running
  std::vector<const CrossAttention*> cross_attentions() const;
  Tensor added_conditions(Exec& ex, const TimeInputs& inputs) const;

  UNetConfig config_;
  LayerRange own_;
  TensorShare share_;
  SlotFilter own_parameters_;  // empty: all
  DType dtype_ = DType::kF32, loaded_as_ = DType::kF32;
  bool on_host_ = true;  // where it multiplies
  Conv conv_in_, conv_out_;
  Linear time1_, time2_;
  std::optional<Linear> time_cond_;
  std::optional<Linear> added1_, added2_;
  StackedLinear time_projections_;  // of every residual block, in order of running
  std::vector<DownBlock> down_;
  std::optional<MidBlock> mid_;
  std::vector<UpBlock> up_;
  Norm norm_out_;
  std::vector<std::string> self_attentions_;
  std::vector<bool> middle_layers_;  // of them
  std::vector<ImageAttention> image_attentions_;
};

}  // namespace rocm_sd
