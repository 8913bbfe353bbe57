#include "weights/inspect_adapters.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "weights/adapter.hpp"
#include "weights/controlnet_weights.hpp"
#include "weights/embedding_file.hpp"
#include "weights/t2i_weights.hpp"

namespace rocm_sd {
namespace {

using Report = nlohmann::ordered_json;

// Which models read text states of this width; empty for others.
const char* family_of(int64_t width) {
  return width == 768 ? "SD 1.x" : width == 1024 ? "SD 2.x" : width == 2048 ? "SDXL" : "";
}

bool any_name(const TensorSet& tensors, std::string_view piece) {
  return std::ranges::any_of(tensors.tensors(), [&](const TensorRef& ref) {
    return ref.entry->name.find(piece) != std::string::npos;
  });
}

// 0 where there is no such tensor or axis.
int64_t dim_in(const TensorSet& tensors, std::string_view name, int axis) {
  const TensorEntry* found = tensors.find(name);
  return found != nullptr && axis < found->shape.rank() ? found->shape[axis] : 0;
}

// What a LoRA's file says without a model.
Report lora_report(const AdapterSummary& adapter) {
  Report to = Report::object();
  to["base_model"] = adapter.base_model;
  const auto counts = [](const auto& map) {
    Report out = Report::object();
    for (const auto& [name, modules] : map) out[fmt::format("{}", name)] = modules;
    return out;
  };
  to["algorithms"] = counts(adapter.algorithms);
  to["components"] = counts(adapter.components);
  to["ranks"] = counts(adapter.ranks);
  to["unknown"] = adapter.unknown;
  return to;
}

// The text that a ControlNet attends to tells which models it is for.
Report controlnet_report(const TensorSet& tensors) {
  int64_t width = 0, types = 0;
  for (const TensorRef& ref : tensors.tensors()) {
    const TensorEntry& entry = *ref.entry;
    if (entry.name.ends_with("attn2.to_k.weight") && entry.shape.rank() == 2) width = entry.shape[1];
    if (entry.name.ends_with("task_embedding") && entry.shape.rank() == 2) types = entry.shape[0];
  }
  return {{"text_width", width},
          {"for", family_of(width)},
          {"union_types", types},
          {"low_rank", any_name(tensors, "lora_controlnet")}};
}

Report t2i_report(const TensorSet& tensors) {
  const nlohmann::json config = *t2i_of(tensors, nullptr).config;
  const std::string type = config.at("adapter_type");
  return {{"kind", type},
          {"in_channels", config.at("in_channels").get<int64_t>()},
          {"channels", config.at("channels")},
          {"for", type == "full_adapter_xl" ? "SDXL" : "SD 1.x, SD 2.x"}};
}

// A FaceID file's low-rank tensors are left out of what is described: `problem` tells of them.
Report ip_adapter_report(const TensorSet& tensors) {
  const auto dim = [&](const char* name, int axis) -> int64_t {
    return dim_in(tensors, concat("image_proj.", name), axis);
  };
  int64_t layers = 0;
  for (const TensorRef& ref : tensors.tensors())
    layers += ref.entry->name.ends_with(".to_k_ip.weight") ? 1 : 0;
  const bool plus = dim("latents", 1) > 0, plain = dim("proj.weight", 0) > 0;
  const bool full = !plus && !plain && dim("proj.3.weight", 0) > 0;
  const bool both = dim("perceiver_resampler.proj_in.weight", 1) > 0;
  const int64_t context = plus ? dim("proj_out.weight", 0) : dim(full ? "proj.3.weight" : "norm.weight", 0);
  const int64_t rows = dim(plain ? "proj.weight" : "proj.2.weight", 0);
  const char* kind = plus ? "Plus" : plain ? "plain" : full ? "Full" : both ? "FaceID Plus" : "FaceID";
  const char* reads = plus || full ? "states"
                      : plain      ? "an image's embedding"
                      : both       ? "states and a face's embedding"
                                   : "a face's embedding";
  return {{"kind", kind},
          {"reads", reads},
          {"width", plus    ? dim("proj_in.weight", 1)
                    : plain ? dim("proj.weight", 1)
                            : dim("proj.0.weight", 1)},
          {"tokens", plus                   ? dim("latents", 1)
                     : full || context == 0 ? 0
                                            : rows / context},
          {"text_width", context},
          {"for", family_of(context)},
          {"cross_attentions", layers},
          {"lora_tensors", std::ranges::count_if(tensors.tensors(), [](const TensorRef& ref) {
             return ref.entry->name.starts_with("ip_adapter.") &&
                    ref.entry->name.find("_lora.") != std::string::npos;
           })}};
}

Report encoder_report(const TensorSet& tensors) {
  int64_t layers = 0;
  for (const TensorRef& ref : tensors.tensors())
    layers +=
        ref.entry->name.ends_with(".mlp.fc1.weight") && ref.entry->name.starts_with("vision_model.") ? 1 : 0;
  return {{"width", dim_in(tensors, "vision_model.embeddings.patch_embedding.weight", 0)},
          {"patch_size", dim_in(tensors, "vision_model.embeddings.patch_embedding.weight", 2)},
          {"embedding_width", dim_in(tensors, "visual_projection.weight", 0)},
          {"layers", layers}};
}

// What it is, and what of it would not load.
template <class Describe>
void describe(Report& report, const char* key, const char* type, const Describe& what) {
  report.erase("problem");  // it is no model and need not load as one
  if (type != nullptr) report["type"] = type;
  try {
    report[key] = what();
  } catch (const Error& error) {
    report["problem"] = error.what();
  }
}

void describe_embedding(Report& report, const TensorSet& tensors) {
  if (tensors.files().size() != 1 || tensors.tensors().size() > 2) return;
  try {
    const auto file = EmbeddingFile::of(*tensors.files().front());
    report["embedding"] = {{"vectors", file->vectors()}, {"token", file->token()}, {"sdxl", file->is_sdxl()}};
  } catch (const Error&) {
    return;  // it is none
  }
  report.erase("problem");  // it is no model and need not load as one
  report["type"] = "textual inversion";
}

std::string text_of(const Report& report, const char* key) {
  const auto it = report.find(key);
  return it != report.end() && it->is_string() ? printable(it->get<std::string>(), 1000) : std::string();
}

std::string line(std::string_view name, const std::string& value) {
  return fmt::format("{:<12} {}\n", name, value);
}

std::string for_whom(const Report& report) {
  const std::string family = text_of(report, "for");
  return family.empty() ? "" : ": for " + family;
}

std::string lora_text(const Report& adapter) {
  const std::string base = text_of(adapter, "base_model");
  std::string out = base.empty() ? "" : line("adapter", "for " + base);
  const auto list = [&](const char* key, const char* format) {
    for (const auto& [name, modules] : adapter.at(key).items())
      fmt::format_to(std::back_inserter(out), fmt::runtime(format), printable(name), modules.get<int64_t>());
  };
  list("algorithms", "  {}: {} modules\n");
  list("components", "  {}: {} modules\n");
  list("ranks", "  rank {}: {} modules\n");
  if (const auto unknown = adapter.at("unknown").get<int64_t>(); unknown > 0)
    fmt::format_to(std::back_inserter(out), "  {} tensors of unknown use\n", unknown);
  return out;
}

std::string controlnet_text(const Report& control) {
  const auto types = control.at("union_types").get<int64_t>();
  return line("controlnet",
              concat("attends to text states of width ", control.at("text_width").get<int64_t>(),
                     for_whom(control), types > 0 ? concat("; a union of ", types, " types") : std::string(),
                     control.at("low_rank").get<bool>() ? "; a ControlNet-LoRA" : ""));
}

std::string ip_adapter_text(const Report& adapter) {
  const auto tokens = adapter.at("tokens").get<int64_t>(), loras = adapter.at("lora_tensors").get<int64_t>();
  return line("ip-adapter",
              concat(text_of(adapter, "kind"), for_whom(adapter), "; reads ", text_of(adapter, "reads"), " ",
                     adapter.at("width").get<int64_t>(), " wide, makes ",
                     tokens > 0 ? concat(tokens, " tokens") : std::string("a token of each"), ", ",
                     adapter.at("cross_attentions").get<int64_t>(), " cross attentions",
                     loras > 0 ? concat("; ", loras, " tensors of a LoRA, to be given by --lora") : ""));
}

}  // namespace

void describe_adapter(Report& report, const TensorSet& tensors) {
  if (holds_controlnet(tensors))
    return describe(report, "controlnet", nullptr, [&] { return controlnet_report(tensors); });
  if (holds_t2i_adapter(tensors))
    return describe(report, "t2i_adapter", "a T2I-Adapter", [&] { return t2i_report(tensors); });
  if (any_name(tensors, "image_proj.") && any_name(tensors, ".to_k_ip."))
    return describe(report, "ip_adapter", "an IP-Adapter", [&] { return ip_adapter_report(tensors); });
  if (tensors.find("vision_model.embeddings.class_embedding") != nullptr)
    return describe(report, "image_encoder", "a CLIP image encoder", [&] { return encoder_report(tensors); });
  if (const auto adapter = summarise_adapter(tensors))
    return describe(report, "adapter", nullptr, [&] { return lora_report(*adapter); });
  describe_embedding(report, tensors);
}

std::string adapter_text(const Report& report) {
  if (report.contains("adapter")) return lora_text(report.at("adapter"));
  if (report.contains("controlnet")) return controlnet_text(report.at("controlnet"));
  if (report.contains("ip_adapter")) return ip_adapter_text(report.at("ip_adapter"));
  if (const auto it = report.find("t2i_adapter"); it != report.end())
    return line("t2i-adapter", concat(text_of(*it, "kind"), for_whom(*it), "; reads pictures of ",
                                      it->at("in_channels").get<int64_t>(), " channels, maps of ",
                                      it->at("channels").dump(), " channels"));
  if (const auto it = report.find("image_encoder"); it != report.end())
    return line("encoder",
                concat("width ", it->at("width").get<int64_t>(), ", ", it->at("layers").get<int64_t>(),
                       " layers, patches of ", it->at("patch_size").get<int64_t>(), " pixels, embeddings ",
                       it->at("embedding_width").get<int64_t>(), " wide"));
  if (const auto it = report.find("embedding"); it != report.end()) {
    const std::string token = text_of(*it, "token");
    return line("embedding", concat(it->at("vectors").get<int64_t>(), " vectors",
                                    it->at("sdxl").get<bool>() ? ", for SDXL" : "",
                                    token.empty() ? "" : ", token " + token));
  }
  return {};
}

}  // namespace rocm_sd
