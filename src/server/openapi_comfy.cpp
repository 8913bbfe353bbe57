// ComfyUI's API in the OpenAPI document.
#include <nlohmann/json.hpp>

#include "server/openapi_parts.hpp"

namespace rocm_sd::server {

using nlohmann::json;
using namespace openapi;

void add_comfy_paths(OpenApiPaths& paths) {
  paths.errors_as("ComfyError");
  paths.post("/prompt", "Queue a graph of nodes (ComfyUI); these paths are below /api, too")
      .takes("ComfyPrompt")
      .answers(200, "ComfyQueued")
      .fails({404, 422, 429, 503});
  paths.get("/prompt", "How many prompts wait or run").answers(200, "Object");
  paths.get("/queue", "Prompts that run and wait").answers(200, "ComfyQueue");
  paths.get("/history", "Prompts that have ended").answers(200, "Object");
  paths.get("/history/{id}", "A prompt that has ended").answers(200, "Object");
  for (const char* what : {"queue", "history"})
    paths.post(std::string("/") + what, "Drop prompts").takes("ComfyDrop").answers(200, "", "text/plain");
  paths.get("/view", "An image, by filename, subfolder and type").answers(200, "", "image/png").fails({404});
  paths.get("/object_info", "The nodes that graphs may have").answers(200, "Object");
  paths.get("/object_info/{class}", "A node").answers(200, "Object");
  paths.post("/upload/image", "A picture for LoadImage")
      .takes("ComfyUpload", "multipart/form-data")
      .answers(200, "ComfyFile");
  paths.post("/interrupt", "Cancel what runs").answers(200, "", "text/plain");
  paths.post("/free", "Nothing: models make room for each other").answers(200, "", "text/plain");
  paths.get("/system_stats", "The machine").answers(200, "Object");
  paths.get("/models", "Kinds of models").answers(200, "Names");
  paths.get("/models/{folder}", "Models of a kind").answers(200, "Names").fails({404});
  paths.get("/embeddings", "Embeddings").answers(200, "Names");
  paths.get("/ws", "A WebSocket that tells of prompts").answers(101, "", "");
}

void add_comfy_schemas(json& all) {
  all["Names"] = list_of(text());
  all["ComfyPrompt"] = {{"type", "object"},
                        {"properties",
                         {{"prompt", {{"type", "object"}}},
                          {"client_id", nullable(text())},
                          {"prompt_id", nullable(text())},
                          {"extra_data", {{"type", "object"}}},
                          {"front", boolean()}}},
                        {"required", {"prompt"}}};
  all["ComfyQueued"] =
      object({{"prompt_id", text()}, {"number", integer()}, {"node_errors", {{"type", "object"}}}});
  const json items = list_of({{"type", "array"}, {"items", json::object()}});
  all["ComfyQueue"] = object({{"queue_running", items}, {"queue_pending", items}});
  all["ComfyDrop"] = {{"type", "object"},
                      {"properties", {{"clear", boolean()}, {"delete", list_of(text())}}},
                      {"additionalProperties", false}};
  all["ComfyUpload"] = {{"type", "object"},
                        {"properties",
                         {{"image", {{"type", "string"}, {"format", "binary"}}},
                          {"subfolder", text()},
                          {"overwrite", text()},
                          {"type", {{"type", "string"}, {"enum", {"input"}}}}}},
                        {"required", {"image"}},
                        {"additionalProperties", false}};
  all["ComfyFile"] = object({{"name", text()}, {"subfolder", text()}, {"type", text()}});
  all["ComfyError"] = object({{"error", object({{"type", text()},
                                                {"message", text()},
                                                {"details", text()},
                                                {"extra_info", {{"type", "object"}}}})},
                              {"node_errors", {{"type", "object"}}}});
}

}  // namespace rocm_sd::server
