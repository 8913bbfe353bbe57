// The engine behind one call: load a checkpoint, make pictures from prompts.
//
//   rocm_sd::Pipeline pipeline = rocm_sd::Pipeline::load({.model = "models/demo"});
//   auto result = pipeline.generate({.prompt = "a red apple", .steps = 20});
//   rocm_sd::save_image(result.pictures[0].image, "apple.png", {.parameters =
//   result.pictures[0].parameters});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rocm_sd/error.hpp"
#include "rocm_sd/image.hpp"
#include "rocm_sd/modes.hpp"
#include "rocm_sd/savings.hpp"

namespace rocm_sd {

class Device;
class Ranks;

// A tensor of a live model in host memory, row-major, under the name that it has in its component's state
// (Diffusers' and transformers' names).
struct LiveTensor {
  std::string component;  // "unet", "vae", "text_encoder", "text_encoder_2"
  std::string name;
  std::string dtype;  // "F32", "F16", "BF16"
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

// A LoRA (or LoHa, LoKr, DoRA, IA3) to draw with.
struct LoraUse {
  std::string file;      // path of a .safetensors file, or a name in LoadOptions::lora_dir
  double weight = 1;     // of its changes to the UNet, -100..100
  double te_weight = 1;  // of its changes to the text encoders
  // Factors of both for each block: "1,0,0.5,...", 17 or 26 numbers (SD 1 and 2), 12 or 20 (SDXL), or a
  // preset's name ("OUTALL"); empty: 1 everywhere.
  std::string blocks = {};

  friend bool operator==(const LoraUse& a, const LoraUse& b) {
    return a.file == b.file && a.weight == b.weight && a.te_weight == b.te_weight && a.blocks == b.blocks;
  }
};

// A ControlNet, T2I-Adapter or ControlNet-LoRA to draw with. What is absent takes its default. A union
// ControlNet that is named several times in a row sees all of these pictures at once.
struct ControlUse {
  std::string model;  // Diffusers' folder, or a single .safetensors file with Diffusers' or original names
  std::optional<Image> image;            // what it sees; default: the init image
  std::vector<Image> images = {};        // in place of it, one for each image of the batch
  std::optional<Image> mask = {};        // where it acts: white, and in part grey; default: everywhere
  std::optional<std::string> type = {};  // of a union ControlNet: "canny", "depth", ..., or a number
  std::optional<double> strength;        // factor of what it adds to the UNet, -10..10; default 1
  std::optional<double> start, end;      // shares of the steps between which it acts; default 0 and 1
  std::optional<std::string> mode;       // balanced (the default), prompt, control, guess
  std::optional<std::string> resize;  // for a picture of another shape: "just", "crop" (the default), "fill"
  std::optional<std::string>
      preprocess;  // none (the default), canny[:LOW:HIGH], invert, grey, tile[:FACTOR], inpaint
};

// What an image encoder gave of images, elsewhere: [images,width] (an embedding each; of a face, too), or
// [images,tokens,width] (the states that Plus and Full adapters read); with those of the negative prompt
// first [2,...].
struct ImageEmbeds {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Images as prompts, by an IP-Adapter. What is absent takes its default.
struct IpAdapterUse {
  std::string model;                              // a .safetensors file with image_proj.* and ip_adapter.*
  std::vector<Image> images;                      // one or several, which count as one prompt
  std::vector<std::vector<Image>> each = {};      // in place of images: those of each image of the batch
  std::optional<ImageEmbeds> embeds = {};         // in place of images
  std::vector<Image> masks = {};                  // where each acts: white; none: everywhere
  std::optional<std::string> image_encoder = {};  // folder or file; default: the folder image_encoder beside
                                                  // the adapter, or the model's own
  std::optional<double> weight;                   // factor of what it adds, -10..10; default 1
  std::optional<double> start, end;  // shares of the steps between which it acts; default 0 and 1
};

// A part of the picture with a prompt of its own (GenerateRequest::regions).
struct RegionUse {
  std::string prompt;
  std::optional<Image> mask = {};  // where: white, and in part grey; any size
  // In place of a mask: left, top, width, height as shares of the picture, 0..1. Neither: the next row or
  // column of GenerateRequest::region_split.
  std::vector<double> box = {};
};

// Textual inversion: vectors that a name in the prompt, or in the negative prompt, stands for.
struct EmbeddingUse {
  std::string file;  // path of a .safetensors file
  std::string name;  // in the prompt; empty: the file's name without its ending, and the token that it holds
};

struct LoadOptions {
  std::string model;  // Diffusers folder, or a single .safetensors file
  std::string vae, unet, text_encoder,
      text_encoder_2;  // replace a component: file or folder; empty: the model's own
  std::string taesd;   // decode with TAESD or TAESDXL instead of the VAE
  // Decode with the VAE's finest level at half size, and resize the picture twofold: an approximation.
  bool fast_vae = false;
  std::string device = "auto";  // auto (the first usable GPU, else the CPU), cpu, hip, cuda, hip:1, ...
  // MultiPipeline's (rocm_sd/multi.hpp) in place of `device`: names with commas between them, one of them
  // more than once, "all": every usable GPU, or "ranks": docs/howto/several-devices.md. Pipeline refuses
  // them.
  std::string devices = {};
  // What these devices divide: "images", each draws its own; "guidance": two draw one image together, each a
  // half of guidance; "rows": all draw one, each its rows; "guidance-rows": both; "displaced": stale rows,
  // "guidance-displaced": these and guidance;
  // "pipeline": all draw one, each with its share of the UNet's layers and of their weights; "tensor": each
  // with its share of every attention's heads and every feed-forward's channels, and of their weights.
  std::string split = "images";
  // Parts of one pipeline on several devices: "text=cpu,unet=cuda:0,vae=cuda:1"; parts: text, image (encoders
  // and IP-Adapters), unet (with ControlNets), vae. Those that are not named are on `device`. Not with
  // `devices`.
  std::string place = {};
  std::string dtype = "auto";  // auto, f16 (GPUs), bf16, f32: what products are computed in
  // How the UNet's matrices and filters are stored: auto (as dtype says), or 8 bits and a scale for each
  // output channel: int8, fp8 (e4m3); int8-products, fp8-products: linear layers are multiplied in 8 bits,
  // too, where the GPU can.
  std::string weights = "auto";
  std::string vae_weights = "auto";  // the VAE's: auto, int8, fp8; not multiplied in 8 bits
  std::string prediction = "auto";   // auto, epsilon, v, sample
  std::string variant;               // "fp16": prefer *.fp16.safetensors in a folder that has both
  std::string lora_dir;              // where LoRAs are found by name, folders below it too
  std::string embedding_dir;         // where embeddings are found by name, folders below it too
  bool mmap = false;                 // map weight files instead of reading them
  bool offload = false;              // keep weights in host memory; each stage puts its own on the device
  // With offload, and keep the UNet's in host memory while it works, too: each goes to the device just before
  // it is multiplied. As many stay there as vram_budget has room for; without one, as few as possible.
  bool stream_weights = false;
  // Bytes of device memory to stay within; 0: what the device has free. With `place` of each GPU.
  uint64_t vram_budget = 0;
  // In place of the weight files of `model`, a Diffusers folder, for the components that they belong to. On
  // the CPU they are used where they lie wherever the kernels take that layout and type, so their memory must
  // outlive the pipeline.
  std::vector<LiveTensor> live;
};

struct GenerateRequest {
  std::string prompt;
  // A prompt for each image of the batch, in place of `prompt`; with batch 1 they decide its size.
  std::vector<std::string> prompts = {};
  // Absent: an empty text, or zeros where the model's pipeline asks for them (force_zeros_for_empty_prompt,
  // as SDXL's does). An empty text that is given is encoded.
  std::optional<std::string> negative_prompt;
  // One for each image of the batch, in place of `negative_prompt`; as many as there are images.
  std::vector<std::string> negative_prompts = {};
  // What SDXL's second text encoder reads; absent or empty: what the first one reads.
  std::optional<std::string> prompt_2, negative_prompt_2;
  int width = 0, height = 0;  // multiples of 8; 0: the model's own size (or the init image's)
  int steps = 20;             // 1..1000
  // 1: no guidance. Below 1 a distilled model (LCM, Turbo, Lightning) is not guided either, as in Diffusers;
  // others follow the negative prompt, as in A1111. A UNet that takes the scale as an input gets it there.
  double cfg_scale = 7.0;
  std::string sampler = "auto";  // A1111's, ComfyUI's, sd.cpp's and Diffusers' names; auto: DPM++ 2M, or what
                                 // the model's scheduler_config.json names
  std::string schedule = "auto";  // "karras", "SGM Uniform", "trailing", ...; auto: the sampler's own
  std::vector<double> sigmas;     // replaces the schedule where not empty; decreasing
  int64_t seed = -1;              // -1: random; image i of a batch uses seed + i
  // One for each image of the batch, in place of `seed`: 0 or more; with batch 1 they decide its size. Not
  // with a variation.
  std::vector<int64_t> seeds = {};
  int batch = 1;                // pictures in one UNet call, 1..64
  std::optional<double> eta;    // stochastic share of ancestral, SDE and DDIM samplers
  double guidance_rescale = 0;  // 0..1
  // Guidance acts from step int(start * steps) on, before step int(end * steps) (Kynkäänniemi et al.,
  // "Applying Guidance in a Limited Interval", 2024); elsewhere the prompt's prediction counts alone. Shares
  // of the steps, 0..1.
  double guidance_start = 0, guidance_end = 1;
  // A1111's "negative guidance minimum sigma": below it every second call, or every one, leaves guidance out.
  double negative_min_sigma = 0;
  bool negative_min_sigma_all = false;
  // Dynamic thresholding (Saharia et al., "Imagen", 2022) of clean latents: the quantile that they are
  // clamped to, 0..1; 0: none; and the most that it may be.
  double dynamic_threshold = 0, dynamic_threshold_max = 1;
  // Perturbed-attention guidance (Ahn et al. 2024), beside that of the prompt: away from a third prediction,
  // whose self attention in some layers sees nothing. 0: none.
  double pag_scale = 0;
  // Those layers, as Diffusers' pag_applied_layers: names with commas between them, each of which stands for
  // every layer whose name contains it ("mid", "down_blocks.2", "up_blocks.1.attentions.0"); "." is any
  // character.
  std::string pag_layers = "mid";
  // FreeU (Si et al. 2023): Diffusers' b1, b2, s1, s2, factors of the first two up blocks' maps (b) and of
  // their skips' lowest frequencies (s); empty: not.
  std::vector<double> freeu = {};
  // FreeU's second version, by the same numbers: maps of four and of two times the UNet's first width are
  // amplified where their mean over the channels is large. Not with `freeu`.
  std::vector<double> freeu_v2 = {};
  // Self-attention guidance (Hong et al. 2022): away from the prediction for latents that are blurred where
  // the middle block's self attention looks. 0: none. A second call of the UNet in each step.
  double sag_scale = 0;
  // At most 8 regions; the UNet runs on all of their prompts, whose predictions are averaged pixel by pixel,
  // by how much each region covers it. `prompt` is drawn where none is, and counts region_base (0..1) where
  // some are.
  std::vector<RegionUse> regions = {};
  double region_base = 0;
  std::string region_split;  // "columns:1,2,1", "rows:1,1": where regions lie that say no place themselves
  // More than 0: guidance of cfg_scale with the values that this scale would give, deviations beyond the
  // percentile (0..1) clamped, as the Dynamic Thresholding extension does.
  double mimic_scale = 0, mimic_percentile = 1;
  double image_cfg_scale = 1.5;  // instruct-pix2pix models
  int clip_skip = 0;        // 0: the model's own; n: stop n - 1 layers before the last (A1111's counting)
  std::string rng = "gpu";  // gpu (A1111's default), cpu (PyTorch on the CPU: Diffusers, ComfyUI)
  int64_t variation_seed = -1;
  double variation_strength = 0;  // 0..1
  // More than 0, both: the first noise is that of a picture of this size, in the middle (A1111's "resize seed
  // from").
  int seed_resize_width = 0, seed_resize_height = 0;
  bool plain_prompt = false;          // no weights, one chunk of 77 tokens: Diffusers' reading of a prompt
  std::string emphasis = "original";  // how (word:1.2) acts: original, no norm, ignore
  // LoRAs in this order, after those of the prompt's <lora:name:weight[:unet weight]> tags. They stay until a
  // request asks for others.
  std::vector<LoraUse> loras;
  // "merge": into the weights. "runtime": as low-rank terms beside them, which images of one batch may have
  // different ones of (`prompts`) and whose weights change at once; LoRA and LoCon without DoRA only.
  std::string lora_mode = "merge";
  // Beside those of LoadOptions::embedding_dir. A name counts where the prompts have it, as does ComfyUI's
  // "embedding:name".
  std::vector<EmbeddingUse> embeddings;

  // At most 8, added up. The models stay loaded until a request asks for others, or memory is short.
  std::vector<ControlUse> controls;
  // At most 8, added up. They stay loaded, with their image encoders, as controls do.
  std::vector<IpAdapterUse> ip_adapters = {};

  std::optional<Image> init_image;  // image to image, inpainting, instruct-pix2pix
  // In place of init_image: one for each image of the batch; with batch 1 they decide its size. Not with a
  // mask.
  std::vector<Image> init_images = {};
  double strength = 0.75;  // share of the steps that run on an init image, 0..1
  // All of `steps` run on an init image, of a schedule of steps / strength (A1111's "do exactly the amount of
  // steps the slider specifies").
  bool exact_steps = false;
  std::optional<Image> mask;  // white is repainted; of the init image's size
  int mask_blur = 4;          // Gaussian blur of the mask, standard deviation in pixels, 0..64
  bool mask_invert = false;   // black is repainted
  // What is repainted begins as (A1111's "masked content"): "original", "fill" (colours from around it),
  // "latent noise", "latent nothing"; "auto": original, with outpaint fill.
  std::string masked_content = "auto";
  // The mask's surroundings alone are drawn, at `width` x `height` (0: the model's own size), and put back
  // into the picture, which keeps its size (A1111's "only masked"); how far beyond the mask they reach.
  bool only_masked = false;
  int only_masked_padding = 32;  // pixels of the init image, 0..1024
  Outpaint outpaint = {};        // of the init image; the size, and where there is no mask that, follow
  // How the mask comes to the latents' size: "area", the mean of each 8 x 8 pixels, rounded (A1111),
  // "nearest", the first of each 8 x 8 pixels (Diffusers, LDM); "auto": area, nearest for inpainting models.
  std::string mask_downscale = "auto";
  // How a model without inputs for a mask keeps the rest: "denoised", the prediction's rest is the picture
  // (A1111), or "latents", after each step the latents' rest is the picture with the first noise (Diffusers).
  // Without ancestral noise and memory of earlier steps both are the same.
  std::string mask_blend = "denoised";
  // What the VAE makes of a picture: "mean" of its posterior, or "posterior": a sample, drawn from each
  // image's generator where Diffusers' pipelines draw it.
  std::string vae_sample = "mean";
  std::optional<Image> depth;  // depth models: near is bright, any size; the grey of it counts

  double aesthetic_score = 6.0, negative_aesthetic_score = 2.5;  // SDXL refiner
  int original_width = 0, original_height = 0, crop_left = 0,
      crop_top = 0;                         // SDXL size conditions; 0: the picture's
  int target_width = 0, target_height = 0;  // the same; not of the refiner
  // The size conditions of the negative prompt; absent: those of the prompt (the refiner's crop: 0).
  std::optional<int> negative_original_width, negative_original_height, negative_crop_left, negative_crop_top,
      negative_target_width, negative_target_height;

  // One picture by two models (SDXL's base and refiner): the first stops at a share of the training
  // timesteps, 0..1, the second goes on from there. Latents pass as Picture::latents and init_latents.
  std::optional<double> denoising_start, denoising_end;
  // [batch,4,height/8,width/8] row-major, in place of what the VAE would make of an init image; with
  // denoising_start noisy ones, as x0 + sigma * noise.
  std::vector<float> init_latents;
  bool keep_latents = false;  // fill Picture::latents; a request with denoising_end always does

  // The picture's right border fits to its left one (x), its lower one to its upper one (y): the UNet's and
  // the VAE's convolutions pad with what lies at the other side (A1111's "tiling").
  bool tiling_x = false, tiling_y = false;
  Savings savings = {};

  HiresFix hires = {};      // text to image
  PreviewUse preview = {};  // for Callbacks::preview
  Detailer detail = {};
  Loopback loopback = {};  // image to image

  // Tiled diffusion, for pictures larger than the model's own: the UNet runs over windows of this side, in
  // pixels, and their predictions are averaged. Its memory is that of tile_batch windows.
  int tile_size = 0;                     // 0: not tiled; a multiple of 8
  int tile_overlap = -1;                 // of neighbours at least; -1: half of tile_size
  int tile_batch = 1;                    // windows in one UNet call, 1..64
  std::string tile_weights = "uniform";  // in the average: uniform, gaussian (the middle counts most)

  // Latents to start from in place of seeded noise, [batch,4,height/8,width/8] row-major, standard normal.
  // For tests of parity with other engines.
  std::vector<float> initial_noise;
};

struct Progress {
  std::string stage;        // "load", "text", "image", "encode", "sample", "decode"
  int step = 0, total = 0;  // of the stage; 1-based
  double seconds = 0;       // since the stage began
  std::string device = {};  // of MultiPipeline: which of its devices; else empty
};

// What one of the devices takes of a plan.
struct DeviceMemory {
  std::string device, parts;  // "cuda:0", "unet, vae"
  uint64_t weights = 0, arena = 0, buffers = 0;
  uint64_t total() const { return weights + arena + buffers; }
};

struct MemoryPlan {
  uint64_t weights = 0;  // bytes of parameters, in the layouts that kernels use
  // The arena that each stage needs; they share one. image: of image encoders and IP-Adapters.
  uint64_t text = 0, unet = 0, vae = 0, image = 0;
  uint64_t arena = 0;    // the largest of them: what the arena will hold (with LoadOptions::place all arenas)
  uint64_t buffers = 0;  // latents, text states, pictures
  int vae_bands = 1;     // bands of rows that the VAE works in; 1: the whole picture at once
  bool offload = false;  // weights and arena count the stage that takes the most
  // Where the UNet's weights are streamed: all of them, those of them that stay on the device, the memory
  // that the others take turns in, and the bytes that a call of the UNet copies. weights counts the middle
  // two.
  uint64_t streamed = 0, stream_resident = 0, stream_ring = 0, stream_copied = 0;
  double link_seconds = 0;  // that these copies take of the bus alone, as timed on this machine; 0: not timed
  // One, or with LoadOptions::place several, whose sums are above, or with split "pipeline" each rank, of
  // which the largest is above (MultiPipeline::plans()).
  std::vector<DeviceMemory> devices = {};
  uint64_t total() const { return weights + arena + buffers; }
};

// How far a picture is.
struct Preview {
  int image = 0;            // of the batch
  int step = 0, total = 0;  // 1-based
  Image picture;            // small where the request's mode is "proj"
  double seconds = 0;       // that making it took
};

struct Callbacks {
  // Called on the generating thread; false cancels.
  std::function<bool(const Progress&)> progress;
  // Asked between any two kernels, on the generating thread; true cancels.
  std::function<bool()> cancelled;
  // Told what the request will take, before its first stage; once more where memory ran short and the plan is
  // another one.
  std::function<void(const MemoryPlan&)> planned;
  // Called on the generating thread where the request asks for previews.
  std::function<void(const Preview&)> preview;
  // Asked before those of a step are made, on the generating thread: false leaves them out, and they cost
  // nothing. Absent: all are made.
  std::function<bool(int step, int total)> wants_preview;
};

struct StageTime {
  std::string stage;
  double seconds = 0;
};

struct Picture {
  Image image;
  uint64_t seed = 0;
  std::string parameters;      // A1111's infotext
  std::vector<float> latents;  // [4,height/8,width/8] as x0 + sigma * noise; empty unless asked for
};

// A file that the prompts or the request named, as it was found.
struct UsedFile {
  std::string kind;  // "lora", "embedding"
  std::string path;
};

struct GenerateResult {
  std::vector<Picture> pictures;
  std::vector<StageTime> times;
  MemoryPlan plan;           // that it was drawn by
  uint64_t arena_used = 0;   // bytes of the arena that were really handed out
  uint64_t device_peak = 0;  // most bytes of device memory held at once
  std::vector<std::string> warnings;
  std::string device = {};  // of MultiPipeline: what it was drawn on
  std::vector<UsedFile> files = {};
  std::vector<std::string> savings = {};  // what each of GenerateRequest::savings, and guidance left out, did
  // 16 hexadecimal digits over the kernels that this pipeline has chosen so far, by problem; code: the
  // version and a hash of the kernel archive that they come from.
  std::string kernel_choices = {}, kernel_code = {};
};

// What a model asks to be drawn with: those distilled for few steps.
struct SamplingProposal {
  std::string reason;  // by what the model is known; empty: it is an ordinary one
  int steps = 20;
  double cfg_scale = 7;
  std::string sampler = "auto", schedule = "auto";
};

struct ModelInfo {
  std::string name, kind;  // "dreamshaper_8", "sd1"
  std::string device, dtype;
  std::string prediction;
  int default_width = 0, default_height = 0;
  uint64_t parameters = 0;
  std::string weights_id;  // of the weight files' names, sizes and times: equal for the same files
  SamplingProposal proposal;
  std::vector<std::string> notes;  // what the loader chose or found odd, one line each
};

// Not thread-safe: one call at a time. Every function throws Error subclasses only.
class Pipeline {
 public:
  static Pipeline load(const LoadOptions& options, const Callbacks& callbacks = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  const ModelInfo& info() const;
  // A request with the model's proposal (ModelInfo::proposal) for steps, scale, sampler and schedule: what
  // the command line, the C interface and Python start from. GenerateRequest{} has the values of an ordinary
  // model.
  GenerateRequest default_request() const;
  // What the request will take, from a dry run; also prepares the weights. Throws UsageError for a bad
  // request.
  MemoryPlan plan(const GenerateRequest& request);
  // Throws UsageError, GenerationError (not finite), OutOfMemoryError, CancelledError.
  GenerateResult generate(const GenerateRequest& request, const Callbacks& callbacks = {});

  // Profiles every later call: a table per op, and a Chrome trace.
  void enable_profiling();
  std::string profile_table() const;
  void write_profile_trace(const std::string& path) const;

 private:
  struct State;
  friend class StepBatch;
  explicit Pipeline(std::unique_ptr<State> state);
  friend Pipeline load_pipeline(const LoadOptions&, Device&, const Callbacks&, Ranks*);
  std::unique_ptr<State> state_;
};

struct DeviceInfo {
  std::string name;    // what LoadOptions::device takes: "cpu", "cuda:0"
  std::string detail;  // "NVIDIA H200, sm_90, 139.8 GiB", or why it cannot be used
  bool usable = false;
};
// The CPU and every GPU that a driver reports.
std::vector<DeviceInfo> devices();

// Names for help texts: "euler_a (Euler a)".
std::vector<std::string> sampler_names();
std::vector<std::string> schedule_names_list();
std::string version();

}  // namespace rocm_sd
