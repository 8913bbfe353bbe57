// weights_main: the weights module on the command line, for the tests that compare it with Diffusers.
//   inspect FILE [json]           the report
//   convert FROM TO [dtype]       conversion
//   dump MODEL OUT [name=path..]  every canonical tensor as <component>/<name>, and the configurations as
//   metadata; scaled fp8 as f32;
//                                 names: vae, unet, text_encoder, text_encoder_2, tiny_vae, variant, mmap=1
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "weights/convert.hpp"
#include "weights/inspect.hpp"

namespace {

using namespace rocm_sd;

int run_inspect(int argc, char** argv) {
  const nlohmann::ordered_json report = inspect(argv[2]);
  const std::string text =
      argc > 3 && std::strcmp(argv[3], "json") == 0 ? report.dump() + "\n" : inspect_text(report);
  std::fputs(text.c_str(), stdout);
  return 0;
}

DType parse_dtype(std::string_view name) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2})
    if (dtype_name(type) == name) return type;
  throw UsageError(concat("unknown dtype ", name));
}

int run_convert(int argc, char** argv) {
  ConvertOptions options;
  if (argc > 4) options.dtype = parse_dtype(argv[4]);
  options.on_note = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  convert(argv[2], argv[3], options);
  return 0;
}

CheckpointOptions parse_options(int argc, char** argv, int from) {
  CheckpointOptions options;
  for (int i = from; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string name = argument.substr(0, argument.find('=')), value = argument.substr(name.size() + 1);
    if (name == "vae") options.vae = value;
    if (name == "unet") options.unet = value;
    if (name == "text_encoder") options.text_encoder = value;
    if (name == "text_encoder_2") options.text_encoder_2 = value;
    if (name == "tiny_vae") options.tiny_vae.emplace_back(value);
    if (name == "variant") options.variant = value;
    if (name == "mmap") options.access = FileAccess::kMap;
  }
  return options;
}

int run_dump(int argc, char** argv) {
  const Checkpoint model = Checkpoint::open(argv[2], parse_options(argc, argv, 4));
  std::vector<TensorToWrite> tensors;
  Metadata metadata;
  for (const Component component : kComponents) {
    const WeightStore* store = model.find(component);
    if (store == nullptr) continue;
    const std::string head = concat(component_name(component), "/");
    metadata[concat("config.", component_name(component))] = model.config(component).dump();
    for (const auto& [name, weight] : store->weights()) {
      const DType type = weight.scale == 1.0f ? weight.dtype() : DType::kF32;
      tensors.push_back(
          {head + name, type, weight.shape, [store, w = &weight, type](auto offset, auto bytes, void* dst) {
             const auto size = static_cast<int64_t>(dtype_size(type));
             store->read_range(*w, static_cast<int64_t>(offset) / size, static_cast<int64_t>(bytes) / size,
                               type, dst);
           }});
    }
  }
  metadata["kind"] = model_kind_name(model.kind());
  metadata["in_channels"] = std::to_string(model.in_channels());
  metadata["prediction"] = prediction_name(model.prediction());
  metadata["prediction_source"] = model.prediction_source();
  metadata["zero_terminal_snr"] = model.zero_terminal_snr() ? "true" : "false";
  metadata["notes"] = nlohmann::json(model.notes()).dump();
  const KeyReport keys = model.key_report();
  metadata["unexpected"] = nlohmann::json(keys.unexpected).dump();
  metadata["harmless"] = nlohmann::json(keys.harmless).dump();
  write_safetensors(argv[3], std::move(tensors), metadata);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string command = argc > 2 ? argv[1] : "";
    if (command == "inspect") return run_inspect(argc, argv);
    if (command == "convert" && argc > 3) return run_convert(argc, argv);
    if (command == "dump" && argc > 3) return run_dump(argc, argv);
    throw UsageError("usage: weights_main inspect|convert|dump PATH ...");
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
