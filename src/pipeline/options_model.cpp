// Options of loading a model.
#include <algorithm>

#include "pipeline/option_tables.hpp"

namespace rocm_sd::option_tables {
namespace {

Setter load_text(std::string LoadOptions::* field) {
  return [=](OptionTargets& t, std::string_view v) {
    require<UsageError>(!v.empty(), "expected a value, got an empty text");
    load_of(t).*field = v;
  };
}

// Letters, digits, "_" and "-", and points between them: what a part of a file's name may be.
bool is_word(std::string_view text) {
  const auto ordinary = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !text.empty() && text.find("..") == text.npos && text.front() != '.' && text.back() != '.' &&
         std::all_of(text.begin(), text.end(), [&](char c) { return ordinary(c) || c == '.'; });
}

}  // namespace

std::vector<OptionRow> model_options() {
  return {
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
      {"devices", "", "Model", "NAMES",
       "several in place of --device: cuda:0,cuda:1 (one may stand there twice), all: every usable GPU, or "
       "ranks: one for each process that torchrun, mpirun or srun started (ranks:cpu: the CPU)",
       load_text(&LoadOptions::devices)},
      {"split", "", "Model", "WHAT",
       "what they divide: images (each draws its own), guidance (pairs draw one image together), rows (all "
       "draw one image together), guidance-rows (both), displaced[:CALLS][:check] (rows that read borders "
       "and keys of the call before, after CALLS exact ones: approximate; check tells how far off), "
       "guidance-displaced[:CALLS][:check] (these and guidance), pipeline "
       "(each has a share of the UNet's layers and weights), tensor (each has a share of every attention and "
       "feed-forward layer, and of their weights) [images]",
       load_text(&LoadOptions::split)},
      {"place", "", "Model", "PARTS",
       "parts on devices of their own: text=cpu,unet=cuda:0,vae=cuda:1 (text, image, unet, vae; those that "
       "are not named are on --device)",
       load_text(&LoadOptions::place)},
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
      {"vram-budget", "", "Model", "BYTES",
       "device memory to stay within: 6G, 6000M, bytes; of each GPU [what is free]",
       [](OptionTargets& t, std::string_view v) { load_of(t).vram_budget = parse_bytes(v); }},
      {"offload", "", "Model", "", "keep weights in host memory; each stage puts its own on the device",
       [](OptionTargets& t, std::string_view v) { load_of(t).offload = parse_flag(v); }},
      {"stream-weights", "", "Model", "",
       "--offload, and copy the UNet's weights to the device while it works: takes less memory than they do "
       "(ComfyUI's and A1111's --lowvram), the same image",
       [](OptionTargets& t, std::string_view v) { load_of(t).stream_weights = parse_flag(v); }},
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
  };
}

}  // namespace rocm_sd::option_tables
