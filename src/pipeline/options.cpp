#include "pipeline/options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"
#include "pipeline/adapters.hpp"
#include "pipeline/embeddings.hpp"
#include "pipeline/latents_file.hpp"

namespace rocm_sd {
namespace {

using Setter = std::function<void(OptionTargets&, std::string_view)>;
using Request = GenerateRequest;

constexpr size_t kMaxControls = 8;

LoadOptions& load_of(OptionTargets& t) {
  require<UsageError>(t.load != nullptr, "is set when the model is loaded, not here");
  return *t.load;
}
Request& request_of(OptionTargets& t) {
  require<UsageError>(t.request != nullptr, "belongs to a request, not to loading");
  return *t.request;
}

bool parse_flag(std::string_view text) {
  if (text.empty() || text == "true" || text == "1" || text == "yes" || text == "on") return true;
  require<UsageError>(text == "false" || text == "0" || text == "no" || text == "off",
                      "expected true or false, got \"", printable(text), "\"");
  return false;
}

Setter load_text(std::string LoadOptions::* field) {
  return [=](OptionTargets& t, std::string_view v) {
    require<UsageError>(!v.empty(), "expected a value, got an empty text");
    load_of(t).*field = v;
  };
}
template <class Field>  // std::string, or optional
Setter text(Field Request::* field) {
  return [=](OptionTargets& t, std::string_view v) {
    const std::string problem = utf8_problem(v);
    require<UsageError>(problem.empty(), problem);
    request_of(t).*field = std::string(v);
  };
}
Setter optional_integer(std::optional<int> Request::* field, int64_t least, int64_t most) {
  return [=](OptionTargets& t, std::string_view v) {
    request_of(t).*field = static_cast<int>(parse_integer(v, least, most));
  };
}
Setter share(std::optional<double> Request::* field) {
  return [=](OptionTargets& t, std::string_view v) { request_of(t).*field = parse_number(v, 0, 1); };
}
template <class T>
Setter integer(T Request::* field, int64_t least, int64_t most) {
  return [=](OptionTargets& t, std::string_view v) {
    request_of(t).*field = static_cast<T>(parse_integer(v, least, most));
  };
}
Setter number(double Request::* field, double least, double most) {
  return [=](OptionTargets& t, std::string_view v) { request_of(t).*field = parse_number(v, least, most); };
}

// The n-th time an option of ControlNets is given it belongs to the n-th one: the first that lacks it.
template <class Lacks>
ControlUse& control_without(OptionTargets& t, const Lacks& lacks) {
  std::vector<ControlUse>& controls = request_of(t).controls;
  for (ControlUse& use : controls)
    if (lacks(use)) return use;
  require<UsageError>(controls.size() < kMaxControls, "given more than ", kMaxControls, " times");
  return controls.emplace_back();
}
template <class Value>
ControlUse& control_without(OptionTargets& t, std::optional<Value> ControlUse::* field) {
  return control_without(t, [field](const ControlUse& use) { return !(use.*field); });
}
Setter control_number(std::optional<double> ControlUse::* field, double least, double most) {
  return [=](OptionTargets& t, std::string_view v) {
    control_without(t, field).*field = parse_number(v, least, most);
  };
}
Setter control_text(std::optional<std::string> ControlUse::* field) {
  return [=](OptionTargets& t, std::string_view v) { control_without(t, field).*field = std::string(v); };
}

std::vector<double> parse_list(std::string_view list) {
  std::vector<double> out;
  for (;;) {
    const size_t comma = std::min(list.find(','), list.size());
    out.push_back(parse_number(list.substr(0, comma), 0, 1e9));
    require<UsageError>(out.size() <= 1001, "at most 1001 sigmas");
    if (comma == list.size()) return out;
    list = list.substr(comma + 1);
  }
}

// Letters, digits, "_" and "-", and points between them: what a part of a file's name may be.
bool is_word(std::string_view text) {
  const auto ordinary = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !text.empty() && text.find("..") == text.npos && text.front() != '.' && text.back() != '.' &&
         std::all_of(text.begin(), text.end(), [&](char c) { return ordinary(c) || c == '.'; });
}

constexpr int64_t kMaxSide = 4096;

// The pictures of a folder in the order of their names.
std::vector<Image> load_images(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".png" || ending == ".jpg" || ending == ".jpeg" || ending == ".webp")
      paths.push_back(entry.path());
  }
  require<FileError>(!error && !paths.empty(), printable(folder),
                     ": expected a folder of pictures (.png, .jpg, .webp)", error ? ": " : "",
                     error ? error.message() : "");
  constexpr size_t kMaxBatch = 64;
  require<UsageError>(paths.size() <= kMaxBatch, printable(folder), ": expected at most ", kMaxBatch,
                      " pictures, found ", paths.size());
  std::sort(paths.begin(), paths.end());
  std::vector<Image> out;
  for (const fs::path& path : paths) out.push_back(load_image(path.string()));
  return out;
}

void set_control_model(OptionTargets& t, std::string_view v) {
  require<UsageError>(!v.empty(), "expected a file or folder, got an empty text");
  control_without(t, [](const ControlUse& use) { return use.model.empty(); }).model = v;
}
void set_control_image(OptionTargets& t, std::string_view v) {
  if (is_folder_path(std::string(v))) {
    const auto lacks = [](const ControlUse& use) { return !use.image && use.images.empty(); };
    ControlUse& use = control_without(t, lacks);
    use.images = load_images(std::string(v));
    return;
  }
  Image image = load_image(std::string(v));
  const auto lacks = [](const ControlUse& use) { return !use.image && use.images.empty(); };
  control_without(t, lacks).image = std::move(image);
}

void set_control_mask(OptionTargets& t, std::string_view v) {
  Image image{1, 1, {255, 255, 255}, {}};  // "none": everywhere
  if (v != "none") image = load_image(std::string(v));
  control_without(t, &ControlUse::mask).mask = std::move(image);
}

void set_latents(Request& request, const std::string& path) {
  constexpr int64_t kDownscale = 8;
  Latents latents = load_latents(path);
  request.width = static_cast<int>(kDownscale * latents.width);
  request.height = static_cast<int>(kDownscale * latents.height);
  request.batch = static_cast<int>(latents.images);
  request.init_latents = std::move(latents.values);
}

const std::vector<OptionRow>& rows() {
  static const std::vector<OptionRow> table = {
      {"model", "m", "Model", "PATH", "Diffusers folder or single .safetensors file",
       load_text(&LoadOptions::model)},
      {"vae", "", "Model", "PATH", "VAE to use in place of the model's own", load_text(&LoadOptions::vae)},
      {"unet", "", "Model", "PATH", "UNet to use in place of the model's own", load_text(&LoadOptions::unet)},
      {"text-encoder", "", "Model", "PATH", "first text encoder in place of the model's own",
       load_text(&LoadOptions::text_encoder)},
      {"text-encoder-2", "", "Model", "PATH", "second text encoder in place of the model's own",
       load_text(&LoadOptions::text_encoder_2)},
      {"taesd", "", "Model", "PATH", "decode with TAESD or TAESDXL: fast, approximate",
       load_text(&LoadOptions::taesd)},
      {"fast-vae", "", "Model", "",
       "decode with the VAE's finest level at half size: half of its memory, less time, approximate",
       [](OptionTargets& t, std::string_view v) { load_of(t).fast_vae = parse_flag(v); }},
      {"device", "", "Model", "NAME", "auto, cpu, hip, cuda, hip:1, ...; `rocm-sd devices` [auto]",
       load_text(&LoadOptions::device)},
      {"dtype", "", "Model", "TYPE",
       "what products are computed in: auto, f16 (GPUs), bf16, f32 (slow on GPUs) [auto]",
       load_text(&LoadOptions::dtype)},
      {"weights", "", "Model", "TYPE",
       "how the UNet's weights are stored: auto (as --dtype), or in 8 bits: int8, fp8; and multiplied: "
       "int8-products, fp8-products [auto]",
       load_text(&LoadOptions::weights)},
      {"vae-weights", "", "Model", "TYPE",
       "how the VAE's weights are stored: auto (as --dtype), int8, fp8 [auto]",
       load_text(&LoadOptions::vae_weights)},
      {"vram-budget", "", "Model", "BYTES", "device memory to stay within: 6G, 6000M, bytes [what is free]",
       [](OptionTargets& t, std::string_view v) { load_of(t).vram_budget = parse_bytes(v); }},
      {"offload", "", "Model", "", "keep weights in host memory; each stage puts its own on the device",
       [](OptionTargets& t, std::string_view v) { load_of(t).offload = parse_flag(v); }},
      {"prediction", "", "Model", "TYPE", "auto, epsilon, v, sample [auto]",
       load_text(&LoadOptions::prediction)},
      {"variant", "", "Model", "NAME", "fp16: prefer *.fp16.safetensors in a folder that has both",
       [](OptionTargets& t, std::string_view v) {
         require<UsageError>(is_word(v), "expected a plain word such as fp16, got \"", printable(v), "\"");
         load_of(t).variant = v;
       }},
      {"lora-dir", "", "Model", "FOLDER", "where LoRAs are found by name, folders below it too",
       load_text(&LoadOptions::lora_dir)},
      {"embedding-dir", "", "Model", "FOLDER",
       "where embeddings (textual inversion) are found by name, folders below it too",
       load_text(&LoadOptions::embedding_dir)},
      {"mmap", "", "Model", "", "map weight files instead of reading them",
       [](OptionTargets& t, std::string_view v) { load_of(t).mmap = parse_flag(v); }},

      {"prompt", "p", "Prompt", "TEXT", "what the picture shows; (word:1.2), [word] and BREAK as in A1111",
       text(&Request::prompt)},
      {"negative-prompt", "n", "Prompt", "TEXT",
       "what it does not show; \"\" is an empty text, absent what the model takes for none (SDXL: zeros)",
       text(&Request::negative_prompt)},
      {"image-prompt", "", "Prompt", "TEXT",
       "the prompt of one image of the batch, in place of --prompt; given once for each",
       [](OptionTargets& t, std::string_view v) { request_of(t).prompts.emplace_back(v); }, true},
      {"prompt-2", "", "Prompt", "TEXT", "what SDXL's second text encoder reads [the prompt]",
       text(&Request::prompt_2)},
      {"negative-prompt-2", "", "Prompt", "TEXT",
       "what SDXL's second text encoder reads [the negative prompt]", text(&Request::negative_prompt_2)},
      {"clip-skip", "", "Prompt", "N",
       "stop N - 1 layers before the text encoder's last; 0: the model's own [0]",
       integer(&Request::clip_skip, 0, 12)},
      {"lora", "", "Prompt", "FILE[:W[:TE]][:lbw=LIST]",
       "LoRA to draw with, its weights for UNet and text encoders, and factors of them for each block; may "
       "be "
       "given several times",
       [](OptionTargets& t, std::string_view v) { request_of(t).loras.push_back(parse_lora_use(v)); }, true},
      {"lora-mode", "", "Prompt", "MODE",
       "merge: LoRAs into the weights; runtime: as terms beside them, others for each image of a batch "
       "[merge]",
       text(&Request::lora_mode)},
      {"embedding", "", "Prompt", "[NAME=]FILE",
       "textual inversion that the prompts may name; may be given several times",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).embeddings.push_back(parse_embedding_use(v));
       },
       true},
      {"emphasis", "", "Prompt", "MODE", "how (word:1.2) acts: original, no norm, ignore [original]",
       text(&Request::emphasis)},
      {"plain-prompt", "", "Prompt", "", "no weights, cut at 77 tokens: Diffusers' reading of a prompt",
       [](OptionTargets& t, std::string_view v) { request_of(t).plain_prompt = parse_flag(v); }},

      {"width", "W", "Picture", "PX", "multiple of 8 [the model's own]",
       integer(&Request::width, 0, kMaxSide)},
      {"height", "H", "Picture", "PX", "multiple of 8 [the model's own]",
       integer(&Request::height, 0, kMaxSide)},
      {"batch", "b", "Picture", "N", "pictures in one UNet call [1]", integer(&Request::batch, 1, 64)},
      {"seed", "s", "Picture", "N", "-1: random; picture i uses seed + i [-1]",
       integer(&Request::seed, -1, std::numeric_limits<int64_t>::max())},

      {"steps", "", "Sampling", "N", "1 to 1000 [20]", integer(&Request::steps, 1, 1000)},
      {"cfg-scale", "c", "Sampling", "X", "guidance scale; 1, and for distilled models less: none [7]",
       number(&Request::cfg_scale, -100, 100)},
      {"sampler", "", "Sampling", "NAME", "\"DPM++ 2M\", euler_a, ...; `rocm-sd list samplers` [auto]",
       text(&Request::sampler)},
      {"schedule", "", "Sampling", "NAME",
       "karras, sgm_uniform, trailing, ...; `rocm-sd list schedules` [auto]", text(&Request::schedule)},
      {"sigmas", "", "Sampling", "LIST", "explicit noise levels, decreasing, with commas",
       [](OptionTargets& t, std::string_view v) { request_of(t).sigmas = parse_list(v); }},
      {"eta", "", "Sampling", "X", "stochastic share of ancestral, SDE and DDIM samplers [the sampler's own]",
       [](OptionTargets& t, std::string_view v) { request_of(t).eta = parse_number(v, 0, 10); }},
      {"guidance-rescale", "", "Sampling", "X", "0 to 1 [0]", number(&Request::guidance_rescale, 0, 1)},
      {"guidance-start", "", "Sampling", "X", "guidance acts from this share of the steps on [0]",
       number(&Request::guidance_start, 0, 1)},
      {"guidance-end", "", "Sampling", "X", "and before this one [1]", number(&Request::guidance_end, 0, 1)},
      {"negative-min-sigma", "", "Sampling", "X",
       "below this sigma every second call leaves guidance out (A1111's NGMS) [0]",
       number(&Request::negative_min_sigma, 0, 100)},
      {"negative-min-sigma-all", "", "Sampling", "", "every call, not every second one",
       [](OptionTargets& t, std::string_view v) { request_of(t).negative_min_sigma_all = parse_flag(v); }},
      {"dynamic-threshold", "", "Sampling", "X",
       "clean latents are clamped to this quantile, 0 to 1, and divided by it; 0: not [0]",
       number(&Request::dynamic_threshold, 0, 1)},
      {"dynamic-threshold-max", "", "Sampling", "X", "the most that the quantile may be [1]",
       number(&Request::dynamic_threshold_max, 1, 1000)},
      {"pag-scale", "", "Sampling", "X", "perturbed-attention guidance; 0: not [0]",
       number(&Request::pag_scale, 0, 100)},
      {"pag-layers", "", "Sampling", "LIST",
       "its layers by parts of their names with commas: mid, down_blocks.2, up_blocks.1.attentions.0, ... "
       "[mid]",
       text(&Request::pag_layers)},
      {"freeu", "", "Sampling", "B1,B2,S1,S2",
       "FreeU: factors of the up blocks' maps and of their skips [not]",
       [](OptionTargets& t, std::string_view v) { request_of(t).freeu = parse_list(v); }},
      {"mimic-scale", "", "Sampling", "X", "guidance with the values that this scale would give; 0: not [0]",
       number(&Request::mimic_scale, 0, 100)},
      {"mimic-percentile", "", "Sampling", "X", "deviations beyond it are clamped, 0 to 1 [1]",
       number(&Request::mimic_percentile, 0, 1)},
      {"rng", "", "Sampling", "NAME", "gpu: A1111's noise; cpu: PyTorch's on the CPU [gpu]",
       text(&Request::rng)},
      {"variation-seed", "", "Sampling", "N", "second seed to mix in; -1: random [-1]",
       integer(&Request::variation_seed, -1, std::numeric_limits<int64_t>::max())},
      {"variation-strength", "", "Sampling", "X", "0: seed alone, 1: variation seed alone [0]",
       number(&Request::variation_strength, 0, 1)},

      {"init-image", "i", "Image to image", "FILE", "picture to start from (PNG, JPEG, WebP)",
       [](OptionTargets& t, std::string_view v) { request_of(t).init_image = load_image(std::string(v)); }},
      {"strength", "", "Image to image", "X", "share of the steps that change it, 0 to 1 [0.75]",
       number(&Request::strength, 0, 1)},
      {"mask", "", "Image to image", "FILE", "white is repainted; a transparent picture counts by its alpha",
       [](OptionTargets& t, std::string_view v) { request_of(t).mask = load_image(std::string(v)); }},
      {"mask-blur", "", "Image to image", "PX", "Gaussian blur of the mask [4]",
       integer(&Request::mask_blur, 0, 64)},
      {"mask-downscale", "", "Image to image", "HOW",
       "mask at the latents' size: area (A1111), nearest (Diffusers) [area; inpainting models: nearest]",
       text(&Request::mask_downscale)},
      {"mask-blend", "", "Image to image", "HOW",
       "what keeps the rest of a masked picture: denoised (A1111), latents (Diffusers) [denoised]",
       text(&Request::mask_blend)},
      {"vae-sample", "", "Image to image", "HOW",
       "latents of a picture: mean, or posterior: drawn from the seed, as Diffusers [mean]",
       text(&Request::vae_sample)},
      {"init-latents", "", "Image to image", "FILE",
       "latents to start from, as --keep-latents writes them; their size and number count",
       [](OptionTargets& t, std::string_view v) { set_latents(request_of(t), std::string(v)); }},
      {"keep-latents", "", "Image to image", "", "write latents, too: beside each picture as .safetensors",
       [](OptionTargets& t, std::string_view v) { request_of(t).keep_latents = parse_flag(v); }},
      {"depth", "", "Image to image", "FILE", "depth models: a depth map, near is bright",
       [](OptionTargets& t, std::string_view v) { request_of(t).depth = load_image(std::string(v)); }},
      {"image-cfg-scale", "", "Image to image", "X", "instruct-pix2pix: how close to the picture [1.5]",
       number(&Request::image_cfg_scale, 0, 100)},

      {"control", "", "ControlNet", "PATH",
       "model: Diffusers' folder or a .safetensors file; may be given several times, and then the first of "
       "the options "
       "below belongs to the first, and so on",
       set_control_model, true},
      {"control-image", "", "ControlNet", "FILE",
       "what it sees: edges, a depth map, ...; of a folder one picture for each of the batch [the init "
       "image]",
       set_control_image, true},
      {"control-type", "", "ControlNet", "NAME",
       "what kind of picture a union ControlNet sees: openpose, depth, softedge, canny, normal, segment, "
       "tile, "
       "inpaint, or its number; one that is named several times in a row sees all its pictures at once",
       control_text(&ControlUse::type), true},
      {"control-mask", "", "ControlNet", "FILE",
       "where it acts: white, and in part grey; none: everywhere [none]", set_control_mask, true},
      {"control-strength", "", "ControlNet", "X", "factor of what it adds to the UNet [1]",
       control_number(&ControlUse::strength, -10, 10), true},
      {"control-start", "", "ControlNet", "X", "share of the steps after which it acts [0]",
       control_number(&ControlUse::start, 0, 1), true},
      {"control-end", "", "ControlNet", "X", "share of the steps up to which it acts [1]",
       control_number(&ControlUse::end, 0, 1), true},
      {"control-mode", "", "ControlNet", "NAME",
       "balanced; prompt, control: A1111's \"... is more important\"; guess: Diffusers' guess mode "
       "[balanced]",
       control_text(&ControlUse::mode), true},
      {"control-resize", "", "ControlNet", "HOW",
       "a picture of another shape: just (stretched), crop (the middle), fill (with its border's colour) "
       "[crop]",
       control_text(&ControlUse::resize), true},
      {"control-preprocess", "", "ControlNet", "NAME",
       "none, canny[:LOW:HIGH], invert, grey, tile[:FACTOR], inpaint (of the mask) [none]",
       control_text(&ControlUse::preprocess), true},

      {"tile-size", "", "Tiles", "PX",
       "the UNet over windows of this side, averaged; 0: the whole picture [0]",
       integer(&Request::tile_size, 0, kMaxSide)},
      {"tile-overlap", "", "Tiles", "PX", "what neighbouring windows share at least [half of tile-size]",
       integer(&Request::tile_overlap, 0, kMaxSide)},
      {"tile-batch", "", "Tiles", "N", "windows in one UNet call [1]", integer(&Request::tile_batch, 1, 64)},
      {"tile-weights", "", "Tiles", "NAME", "in the average: uniform, gaussian [uniform]",
       text(&Request::tile_weights)},

      {"aesthetic-score", "", "Advanced", "X", "SDXL refiner [6]", number(&Request::aesthetic_score, 0, 100)},
      {"negative-aesthetic-score", "", "Advanced", "X", "SDXL refiner [2.5]",
       number(&Request::negative_aesthetic_score, 0, 100)},
      {"original-width", "", "Advanced", "PX", "SDXL size condition [the picture's]",
       integer(&Request::original_width, 0, 65536)},
      {"original-height", "", "Advanced", "PX", "SDXL size condition [the picture's]",
       integer(&Request::original_height, 0, 65536)},
      {"crop-left", "", "Advanced", "PX", "SDXL crop condition [0]", integer(&Request::crop_left, 0, 65536)},
      {"crop-top", "", "Advanced", "PX", "SDXL crop condition [0]", integer(&Request::crop_top, 0, 65536)},
      {"target-width", "", "Advanced", "PX", "SDXL size condition [the picture's]",
       integer(&Request::target_width, 0, 65536)},
      {"target-height", "", "Advanced", "PX", "SDXL size condition [the picture's]",
       integer(&Request::target_height, 0, 65536)},
      {"negative-original-width", "", "Advanced", "PX", "of the negative prompt [the prompt's]",
       optional_integer(&Request::negative_original_width, 0, 65536)},
      {"negative-original-height", "", "Advanced", "PX", "of the negative prompt [the prompt's]",
       optional_integer(&Request::negative_original_height, 0, 65536)},
      {"negative-crop-left", "", "Advanced", "PX", "of the negative prompt [the prompt's; refiner: 0]",
       optional_integer(&Request::negative_crop_left, 0, 65536)},
      {"negative-crop-top", "", "Advanced", "PX", "of the negative prompt [the prompt's; refiner: 0]",
       optional_integer(&Request::negative_crop_top, 0, 65536)},
      {"negative-target-width", "", "Advanced", "PX", "of the negative prompt [the prompt's]",
       optional_integer(&Request::negative_target_width, 0, 65536)},
      {"negative-target-height", "", "Advanced", "PX", "of the negative prompt [the prompt's]",
       optional_integer(&Request::negative_target_height, 0, 65536)},
      {"denoising-start", "", "Advanced", "X", "begin at this share of the training timesteps (refiner) [0]",
       share(&Request::denoising_start)},
      {"denoising-end", "", "Advanced", "X", "stop at this share of the training timesteps (base) [1]",
       share(&Request::denoising_end)},
  };
  return table;
}

// No zeros in front of other digits, and no sign where no number below 0 is taken ("-0").
bool is_plain(std::string_view text, bool unsigned_only) {
  if (text.starts_with('-')) {
    if (unsigned_only) return false;
    text.remove_prefix(1);
  }
  return !(text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9');
}

}  // namespace

int64_t parse_integer(std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && is_plain(text, least >= 0);
  require<UsageError>(whole && value >= least && value <= most, "expected a whole number from ", least,
                      " to ", most, ", got \"", printable(text), "\"");
  return value;
}

uint64_t parse_bytes(std::string_view text) {
  int64_t unit = 1;
  if (!text.empty()) {
    const char last = text.back();
    if (last == 'K' || last == 'k') unit = 1 << 10;
    if (last == 'M' || last == 'm') unit = 1 << 20;
    if (last == 'G' || last == 'g') unit = 1 << 30;
  }
  if (unit > 1) text.remove_suffix(1);
  constexpr int64_t kMax = int64_t{1} << 50;
  return static_cast<uint64_t>(parse_integer(text, 1, kMax / unit) * unit);
}

double parse_number(std::string_view text, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);  // no locale
  const bool whole = error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
                     is_plain(text, least >= 0);
  require<UsageError>(whole && value >= least && value <= most, "expected a number from ", least, " to ",
                      most, ", got \"", printable(text), "\"");
  return value;
}

std::span<const OptionRow> option_rows() { return rows(); }

void set_option(OptionTargets& targets, std::string_view name, std::string_view value) {
  std::vector<std::string> names;
  for (const OptionRow& row : rows()) {
    if (name == row.name) {
      try {
        return row.set(targets, value);
      } catch (const UsageError& e) {
        throw UsageError(concat(name, ": ", e.what()));
      }
    }
    names.emplace_back(row.name);
  }
  throw UsageError(
      concat("unknown option \"", printable(name), "\"; did you mean \"", nearest_name(name, names), "\"?"));
}

}  // namespace rocm_sd
