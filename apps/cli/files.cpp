// rocm-sd inspect, convert, list, params: questions about files and names.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.hpp"
#include "apps/cli/interrupt.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/paths.hpp"
#include "models/completeness.hpp"
#include "pipeline/baked_adapters.hpp"
#include "rocm_sd/pipeline.hpp"
#include "weights/convert.hpp"
#include "weights/inspect.hpp"

namespace rocm_sd::cli {

namespace {

std::optional<DType> parse_stored_type(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "f32" || name == "fp32") return DType::kF32;
  if (name == "f16" || name == "fp16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  if (name == "fp8" || name == "f8e4m3") return DType::kF8E4M3;
  throw UsageError(concat("dtype: expected f32, f16, bf16 or fp8, got \"", printable(name), "\""));
}

// A GGUF file's, by ggml's names.
std::optional<GgmlType> parse_gguf_type(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const GgmlTypeInfo* info = find_ggml_type(name);
  const bool written = info != nullptr && (can_quantize(info->type) || info->type == GgmlType::kF32 ||
                                           info->type == GgmlType::kF16 || info->type == GgmlType::kBF16);
  if (!written)
    throw UsageError(concat("dtype: expected ", ggml_type_names(true), " for a .gguf file, got \"",
                            printable(name), "\""));
  return info->type;
}

struct ConvertCommand {
  std::string from, to, dtype, vae, variant, vocabulary, lora_dir;
  std::vector<std::string> baked_loras;
  bool overwrite = false;
};

void run_convert(const ConvertCommand& c) {
  ConvertOptions options;
  if (c.to.ends_with(".gguf"))
    options.gguf_type = parse_gguf_type(c.dtype);
  else
    options.dtype = parse_stored_type(c.dtype);
  options.source.vae = c.vae;
  options.source.variant = c.variant;
  options.vocabulary =
      c.vocabulary.empty() ? share_path("vocab/clip/merges.txt").parent_path().string() : c.vocabulary;
  options.overwrite = c.overwrite;
  if (!c.baked_loras.empty()) {
    std::vector<LoraUse> uses;
    for (const std::string& text : c.baked_loras) uses.push_back(parse_lora_use(text));
    options.change = [uses, folder = c.lora_dir](const Checkpoint& model) {
      return bake_adapters(model, uses, folder);
    };
  }
  options.check = [](const Checkpoint& model) { require_complete(model); };
  options.cancelled = interrupted;
  catch_interrupts();
  options.on_note = [](const std::string& note) { fmt::print(stderr, "note: {}\n", note); };
  convert(c.from, c.to, options);
  fmt::print("{}\n", c.to);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("inspect", "tell what a model file or folder holds, without loading it");
  sub->add_option("FILE", *file, "a file (safetensors, .ckpt, GGUF) or a Diffusers folder")
      ->required()
      ->type_name("");
  sub->add_flag("--json", *json, "print JSON");
  sub->callback([file, json] {
    const nlohmann::ordered_json report =
        inspect(*file, 10, [](const Checkpoint& model) { require_complete(model); });
    if (*json)
      fmt::print("{}\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    else
      fmt::print("{}", inspect_text(report));
  });
}

void add_convert(CLI::App& app) {
  auto command = std::make_shared<ConvertCommand>();
  CLI::App* sub = app.add_subcommand(
      "convert", "single file (safetensors, GGUF) <-> Diffusers folder, and the element type");
  sub->add_option("FROM", command->from, "a single file (safetensors, .ckpt, GGUF) or a Diffusers folder")
      ->required()
      ->type_name("");
  sub->add_option("TO", command->to,
                  "a name ending in .safetensors or .gguf makes a single file, any other a folder")
      ->required()
      ->type_name("");
  sub->add_option(
         "--dtype", command->dtype,
         "f32, f16, bf16 or fp8; for .gguf f32, f16, bf16, q8_0, q4_0, q4_1, q5_0 or q5_1 [as stored]")
      ->type_name("TYPE");
  add_text(sub, "--vae", command->vae, "VAE to put in place of the model's own")->type_name("PATH");
  add_text(sub, "--variant", command->variant, "fp16: prefer *.fp16.safetensors in a folder that has both")
      ->type_name("NAME");
  sub->add_option("--vocabulary", command->vocabulary,
                  "tokenizer folder for models made from single files [the shipped one]")
      ->type_name("PATH");
  sub->add_option("--bake-lora", command->baked_loras,
                  "LoRA to merge into the weights, as generate's --lora takes it; may be given several times")
      ->type_name("FILE[:W[:TE]][:lbw=LIST]")
      ->allow_extra_args(false);
  add_text(sub, "--lora-dir", command->lora_dir, "where LoRAs are found by name, folders below it too")
      ->type_name("FOLDER");
  sub->add_flag("--overwrite", command->overwrite, "replace an existing target");
  sub->callback([command] { run_convert(*command); });
}

void add_list(CLI::App& app) {
  CLI::App* list = app.add_subcommand("list", "names that other commands take");
  list->require_subcommand(1);
  list->add_subcommand("samplers", "samplers, with A1111's labels")->callback([] {
    for (const std::string& name : sampler_names()) fmt::print("{}\n", name);
  });
  list->add_subcommand("schedules", "noise schedules")->callback([] {
    for (const std::string& name : schedule_names_list()) fmt::print("{}\n", name);
  });
}

void add_devices(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("devices", "what --device takes on this machine");
  sub->callback([] {
    for (const DeviceInfo& device : devices())
      fmt::print("{:<12} {}{}\n", device.name, device.usable ? "" : "cannot be used: ", device.detail);
  });
}

void add_params(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  CLI::App* params = app.add_subcommand("params", "print the generation parameters that a picture carries");
  params->add_option("FILE", *file, "PNG, JPEG or WebP")->required();
  params->callback([file] {
    const std::string text = read_parameters(*file);
    if (text.empty()) throw FormatError(*file + ": carries no parameters");
    fmt::print("{}\n", text);
  });
}

}  // namespace rocm_sd::cli
