// What ComfyUI's clients ask about the machine and its files.
#include <sys/utsname.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "rocm_sd/pipeline.hpp"
#include "server/api.hpp"
#include "server/comfy_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

void system_stats(ApiContext& context, Exchange& exchange) {
  utsname system{};
  uname(&system);
  const HostMemory memory = host_memory();
  json devices = json::array();
  for (size_t i = 0; i < context.workers.size(); ++i) {
    const WorkerStatus status = context.workers[i]->status();
    const bool is_host = status.device == "cpu" || status.device_name.starts_with("host");
    const uint64_t total = status.memory_total, free = is_host ? memory.free : status.memory_free;
    devices.push_back({{"name", status.device_name.empty() ? status.device : status.device_name},
                       {"type", is_host ? "cpu" : "cuda"},
                       {"index", i},
                       {"vram_total", total},
                       {"vram_free", free},
                       {"torch_vram_total", total},
                       {"torch_vram_free", free}});
  }
  exchange.reply->send(json_response({{"system",
                                       {{"os", system.sysname},
                                        {"ram_total", memory.total},
                                        {"ram_free", memory.free},
                                        {"comfyui_version", concat("rocm-sd ", version())},
                                        {"python_version", ""},
                                        {"pytorch_version", ""},
                                        {"embedded_python", false},
                                        {"argv", json::array()}}},
                                      {"devices", devices}}));
}

void models(ApiContext&, Exchange& exchange) {
  exchange.reply->send(json_response({"checkpoints", "loras", "controlnet", "embeddings", "upscale_models"}));
}

void models_of(ApiContext& context, Exchange& exchange) {
  const ComfyNames names = comfy_names(context.catalog);
  const std::string& folder = exchange.part("folder");
  if (folder == "checkpoints") return exchange.reply->send(json_response(names.checkpoints));
  if (folder == "loras") return exchange.reply->send(json_response(names.loras));
  if (folder == "controlnet") return exchange.reply->send(json_response(names.controls));
  if (folder == "upscale_models") return exchange.reply->send(json_response(names.upscalers));
  if (folder != "embeddings")
    throw RequestError({404, "not_found", concat("no folder ", printable(folder)), "folder"});
  json list = json::array();
  for (const NamedFile& one : context.catalog.embeddings()) list.push_back(one.path.filename().string());
  exchange.reply->send(json_response(list));
}

void embeddings(ApiContext& context, Exchange& exchange) {
  json list = json::array();
  for (const NamedFile& one : context.catalog.embeddings()) list.push_back(one.name);
  exchange.reply->send(json_response(list));
}

// Memory is the worker's own affair: models make room for each other.
void free_memory(ApiContext&, Exchange& exchange) { exchange.reply->send({200, "text/plain", "", {}}); }

constexpr Route kRoutes[] = {
    {"POST", "/free", free_memory},     {"GET", "/system_stats", system_stats},
    {"GET", "/models", models},         {"GET", "/models/{folder}", models_of},
    {"GET", "/embeddings", embeddings},
};

}  // namespace

std::span<const Route> comfy_list_routes() { return kRoutes; }

}  // namespace rocm_sd::server
