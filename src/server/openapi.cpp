#include "server/openapi.hpp"

#include <nlohmann/json.hpp>

#include "rocm_sd/pipeline.hpp"
#include "server/job_request.hpp"
#include "server/openapi_parts.hpp"
#include "server/web_ui_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using namespace openapi;

// The bounds that are told in advance; what depends on the model is told by an error.
void add_bounds(json& schema, const std::string& name, const DrawLimits& limits) {
  if (name == "steps") schema.update({{"minimum", 1}, {"maximum", limits.steps}});
  if (name == "batch") schema.update({{"minimum", 1}, {"maximum", limits.batch}});
  if (name == "width" || name == "height")
    schema.update({{"minimum", 0}, {"maximum", 4096}, {"multipleOf", 8}});
  if (name == "seed" || name == "variation_seed") schema["minimum"] = -1;
  if (name == "mask_blur") schema.update({{"minimum", 0}, {"maximum", 64}});
  if (name == "strength" || name == "variation_strength" || name == "guidance_rescale")
    schema.update({{"minimum", 0}, {"maximum", 1}});
  if (name == "prompt" || name == "negative_prompt") schema["maxLength"] = 32000;
}

json option_schema(const KnownOption& option, const DrawLimits& limits) {
  json schema;
  switch (option.type) {
    case OptionType::kInteger: schema = integer(); break;
    case OptionType::kNumber: schema = number(); break;
    case OptionType::kFlag: schema = boolean(); break;
    case OptionType::kImage: schema = {{"type", "string"}, {"format", "byte"}}; break;
    case OptionType::kNumberList: schema = list_of(number()); break;
    case OptionType::kLoraList:
      schema =
          list_of({{"type", "object"},
                   {"properties",
                    {{"name", text()}, {"weight", number()}, {"te_weight", number()}, {"blocks", text()}}},
                   {"required", {"name"}},
                   {"additionalProperties", false}});
      break;
    case OptionType::kControlList:
      schema = list_of({{"type", "object"},
                        {"properties",
                         {{"model", text()},
                          {"image", {{"type", "string"}, {"format", "byte"}}},
                          {"mask", {{"type", "string"}, {"format", "byte"}}},
                          {"strength", number()},
                          {"start", number()},
                          {"end", number()},
                          {"mode", text()},
                          {"resize", text()},
                          {"preprocess", text()},
                          {"type", text()}}},
                        {"required", {"model", "image"}},
                        {"additionalProperties", false}});
      break;
    case OptionType::kIpAdapterList:
      schema = list_of(
          {{"type", "object"},
           {"properties",
            {{"model", text()},
             {"images", list_of({{"type", "string"}, {"format", "byte"}})},
             {"embeds",
              {{"oneOf",
                {json{{"type", "string"}, {"format", "byte"}},
                 list_of({{"oneOf", {json{{"type", "string"}, {"format", "byte"}}, list_of(number())}}})}},
               {"description",
                "what a face model or an image encoder gave: a list of numbers for each face, or "
                "a file of one tensor (.safetensors, torch.save) in base64"}}},
             {"masks", list_of({{"type", "string"}, {"format", "byte"}})},
             {"weight", number()},
             {"start", number()},
             {"end", number()}}},
           {"required", {"model"}},
           {"additionalProperties", false}});
      break;
    case OptionType::kTextList:
      schema = list_of(text());
      schema.update({{"minItems", 1}, {"maxItems", limits.batch}});
      break;
    default: schema = text();
  }
  schema["description"] = option.help;
  add_bounds(schema, option.name, limits);
  return nullable(std::move(schema));
}

json job_request_schema(const DrawLimits& limits) {
  json properties = {
      {"model", text()},
      {"count",
       {{"type", "integer"},
        {"minimum", 1},
        {"maximum", limits.images},
        {"description", "batches, with rising seeds"}}},
      {"hires_upscaler",
       {{"type", "string"}, {"description", "a name of /sdapi/v1/upscalers or latent-upscale-modes"}}},
      {"format", {{"type", "string"}, {"enum", {"png", "jpeg", "webp"}}}},
      {"quality", {{"type", "integer"}, {"minimum", 1}, {"maximum", 100}}},
      {"metadata", {{"type", "boolean"}, {"description", "whether files hold the parameters"}}},
      {"invert_mask", {{"type", "boolean"}, {"description", "black is repainted"}}}};
  for (const KnownOption& option : request_options()) properties[option.name] = option_schema(option, limits);
  properties["prompt"].erase("nullable");
  return {{"type", "object"},
          {"properties", properties},
          {"required", {"prompt"}},
          {"additionalProperties", false}};
}

json job_schema() {
  const json image = object({{"url", text()},
                             {"seed", integer()},
                             {"width", integer()},
                             {"height", integer()},
                             {"parameters", text()}});
  const json progress = object({{"fraction", {{"type", "number"}, {"minimum", 0}, {"maximum", 1}}},
                                {"stage", text()},
                                {"step", integer()},
                                {"total", integer()},
                                {"round", integer()},
                                {"rounds", integer()},
                                {"seconds", number()}});
  return object(
      {{"id", text()},
       {"state", {{"type", "string"}, {"enum", {"queued", "running", "completed", "failed", "cancelled"}}}},
       {"position", integer()},
       {"model", text()},
       {"device", text()},
       {"created", number()},
       {"started", nullable(number())},
       {"finished", nullable(number())},
       {"progress", progress},
       {"images", list_of(image)},
       {"error", nullable(object({{"type", text()}, {"message", text()}}))},
       {"warnings", list_of(text())}});
}

json choice(std::initializer_list<const char*> values) {
  json list = json::array();
  for (const char* value : values) list.push_back(value);
  list.push_back(nullptr);
  return {{"type", "string"}, {"enum", list}, {"nullable", true}};
}

// OpenAI's fields, and those of a job beside them.
json images_request_schema(bool edit, const DrawLimits& limits) {
  json properties = {
      {"model", nullable(text())},
      {"n", nullable({{"type", "integer"}, {"minimum", 1}, {"maximum", 10}})},
      {"size", nullable({{"type", "string"}, {"description", "auto, or WIDTHxHEIGHT in multiples of 8"}})},
      {"quality", choice({"auto", "low", "medium", "standard", "high", "hd"})},
      {"response_format", choice({"b64_json", "url"})},
      {"output_format", choice({"png", "jpeg", "webp"})},
      {"output_compression", nullable({{"type", "integer"}, {"minimum", 0}, {"maximum", 100}})},
      {"background", choice({"auto", "opaque"})},
      {"moderation", choice({"auto", "low"})},
      {"stream", nullable(boolean())},
      {"partial_images", nullable({{"type", "integer"}, {"minimum", 0}, {"maximum", 3}})},
      {"user", nullable(text())},
      {"safety_identifier", nullable(text())}};
  for (const KnownOption& option : request_options()) properties[option.name] = option_schema(option, limits);
  properties["prompt"].erase("nullable");
  json required = {"prompt"};
  if (edit) {
    properties["image"] = {{"type", "string"}, {"format", "binary"}};
    properties["mask"] = {{"type", "string"}, {"format", "binary"}};
    required.push_back("image");
  }
  return {{"type", "object"},
          {"properties", properties},
          {"required", required},
          {"additionalProperties", false}};
}

json images_schema() {
  const json one = {{"type", "object"},
                    {"properties",
                     {{"b64_json", {{"type", "string"}, {"format", "byte"}}},
                      {"url", text()},
                      {"revised_prompt", nullable(text())}}}};
  return object({{"created", integer()},
                 {"data", list_of(one)},
                 {"output_format", text()},
                 {"quality", text()},
                 {"background", text()},
                 {"size", text()}});
}

void add_web_ui_schemas(json& all) {
  all["Txt2imgRequest"] = web_ui_schema(false);
  all["Img2imgRequest"] = web_ui_schema(true);
  all["WebUiImages"] = object({{"images", list_of({{"type", "string"}, {"format", "byte"}})},
                               {"parameters", {{"type", "object"}}},
                               {"info", {{"type", "string"}, {"description", "JSON"}}}});
  json state = object({{"skipped", boolean()},
                       {"interrupted", boolean()},
                       {"stopping_generation", boolean()},
                       {"job", text()},
                       {"job_count", integer()},
                       {"job_timestamp", text()},
                       {"job_no", integer()},
                       {"sampling_step", integer()},
                       {"sampling_steps", integer()}});
  all["WebUiProgress"] = object({{"progress", number()},
                                 {"eta_relative", number()},
                                 {"state", state},
                                 {"current_image", nullable(text())},
                                 {"textinfo", nullable(text())}});
  all["WebUiError"] = {{"type", "object"},
                       {"properties", {{"error", text()}, {"detail", json::object()}, {"errors", text()}}},
                       {"required", {"error", "detail"}}};
  all["WebUiOptions"] = {
      {"type", "object"}, {"properties", {{"sd_model_checkpoint", text()}}}, {"additionalProperties", false}};
  all["WebUiPicture"] = {{"type", "object"},
                         {"properties", {{"image", {{"type", "string"}, {"format", "byte"}}}}},
                         {"required", {"image"}}};
  all["WebUiPngInfo"] =
      object({{"info", text()}, {"items", {{"type", "object"}}}, {"parameters", {{"type", "object"}}}});
  all["WebUiExtra"] = extras_schema(false);
  all["WebUiExtras"] = extras_schema(true);
  all["WebUiEnlarged"] = object({{"html_info", text()}, {"image", text()}});
  all["WebUiEnlargedList"] = object({{"html_info", text()}, {"images", list_of(text())}});
  all["List"] = list_of({{"type", "object"}});
  all["Nothing"] = {{"nullable", true}};
}

void add_openai_paths(OpenApiPaths& paths) {
  paths.post("/v1/images/generations", "Draw images (OpenAI)")
      .takes("ImagesRequest")
      .answers(200, "Images")
      .fails({404, 422, 429, 500, 503});
  paths.post("/v1/images/edits", "Redraw an image, or its transparent part (OpenAI)")
      .takes("EditRequest", "multipart/form-data")
      .answers(200, "Images")
      .fails({404, 422, 429, 500, 503});
  paths.get("/v1/models", "Models (OpenAI)").answers(200, "Object");
  paths.get("/v1/models/{id}", "A model (OpenAI)").answers(200, "Object").fails({404});
}

void add_web_ui_paths(OpenApiPaths& paths) {
  paths.errors_as("WebUiError");
  paths.post("/sdapi/v1/txt2img", "Draw images")
      .takes("Txt2imgRequest")
      .answers(200, "WebUiImages")
      .fails({404, 422, 429, 500, 503});
  paths.post("/sdapi/v1/img2img", "Redraw an image")
      .takes("Img2imgRequest")
      .answers(200, "WebUiImages")
      .fails({404, 422, 429, 500, 503});
  paths.get("/sdapi/v1/progress", "How far the running job is").answers(200, "WebUiProgress");
  paths.post("/sdapi/v1/interrupt", "Cancel the running jobs").answers(200, "Object");
  paths.post("/sdapi/v1/skip", "Go on with the running jobs' next batch").answers(200, "Object");
  paths.get("/sdapi/v1/options", "Settings").answers(200, "Object");
  paths.post("/sdapi/v1/options", "Choose the model")
      .takes("WebUiOptions")
      .answers(200, "Nothing")
      .fails({404, 422});
  for (const char* list :
       {"samplers", "schedulers", "sd-models", "sd-vae", "loras", "upscalers", "latent-upscale-modes",
        "hypernetworks", "face-restorers", "realesrgan-models", "prompt-styles"})
    paths.get(std::string("/sdapi/v1/") + list, "A list").answers(200, "List");
  for (const char* what : {"embeddings", "scripts", "cmd-flags", "memory"})
    paths.get(std::string("/sdapi/v1/") + what, "What there is").answers(200, "Object");
  paths.post("/sdapi/v1/png-info", "The parameters in an image")
      .takes("WebUiPicture")
      .answers(200, "WebUiPngInfo")
      .fails({422});
  for (const char* what : {"extra-single-image", "extra-batch-images"}) {
    const bool one = std::string_view(what) == "extra-single-image";
    paths.post(std::string("/sdapi/v1/") + what, "Enlarge pictures")
        .takes(one ? "WebUiExtra" : "WebUiExtras")
        .answers(200, one ? "WebUiEnlarged" : "WebUiEnlargedList")
        .fails({422, 429, 500, 503});
  }
  for (const char* what : {"version", "model_list", "module_list"})
    paths.get(std::string("/controlnet/") + what, "What the ControlNet extension tells")
        .answers(200, "Object");
  for (const char* what : {"refresh-checkpoints", "refresh-loras"})
    paths.post(std::string("/sdapi/v1/") + what, "Nothing: lists are always fresh").answers(200, "Nothing");
}

json schemas(const DrawLimits& limits) {
  const json worker = object({{"device", text()},
                              {"device_name", text()},
                              {"state", text()},
                              {"model", nullable(text())},
                              {"error", nullable(text())},
                              {"pid", integer()},
                              {"restarts", integer()},
                              {"seconds_per_step", number()}});
  json error = object(
      {{"message", text()}, {"type", text()}, {"param", nullable(text())}, {"code", nullable(text())}});
  error["properties"]["needed_bytes"] = error["properties"]["available_bytes"] =
      integer();  // of out_of_memory
  json all = {{"JobRequest", job_request_schema(limits)},
              {"Job", job_schema()},
              {"Jobs", object({{"jobs", list_of(ref("Job"))}})},
              {"Health", object({{"status", text()}, {"version", text()}, {"uptime", number()}})},
              {"Ready", object({{"ready", boolean()},
                                {"workers", list_of(worker)},
                                {"queued", integer()},
                                {"running", integer()}})},
              {"Error", object({{"error", error}})},
              {"Object", {{"type", "object"}}},
              {"ImagesRequest", images_request_schema(false, limits)},
              {"EditRequest", images_request_schema(true, limits)},
              {"Images", images_schema()}};
  add_web_ui_schemas(all);
  add_comfy_schemas(all);
  return all;
}

}  // namespace

json openapi_document(const DrawLimits& limits) {
  OpenApiPaths paths("Error");
  paths.get("/health", "The server lives").answers(200, "Health");
  paths.get("/ready", "A model is loaded, and what the workers do")
      .answers(200, "Ready")
      .answers(503, "Ready");
  paths.get("/metrics", "Metrics in Prometheus' text format").answers(200, "", "text/plain");
  paths.get("/openapi.json", "This document").answers(200, "Object");
  paths.get("/v1/capabilities", "Models, LoRAs, samplers, options and limits").answers(200, "Object");
  paths.post("/v1/jobs", "Submit a job")
      .takes("JobRequest")
      .answers(202, "Job")
      .fails({400, 404, 422, 429, 503});
  paths.get("/v1/jobs", "The jobs, newest first").answers(200, "Jobs");
  paths.get("/v1/jobs/{id}", "A job").answers(200, "Job").fails({404, 410});
  paths.remove("/v1/jobs/{id}", "Forget a finished job").answers(204, "", "").fails({404, 409, 410});
  paths.post("/v1/jobs/{id}/cancel", "Cancel a job").answers(200, "Job").fails({404, 410});
  paths.get("/v1/jobs/{id}/events", "Changes of a job as server-sent events, to its end")
      .answers(200, "", "text/event-stream")
      .fails({404, 410});
  paths.get("/v1/jobs/{id}/images/{index}", "An image of a job")
      .answers(200, "", "image/png")
      .fails({404, 410});
  paths.get("/v1/jobs/{id}/preview", "A look at a job's unfinished image")
      .answers(200, "", "image/png")
      .fails({404, 410});
  add_openai_paths(paths);
  add_web_ui_paths(paths);
  add_comfy_paths(paths);
  return {
      {"openapi", "3.0.3"},
      {"info",
       {{"title", "rocm-sd"},
        {"version", version()},
        {"description", "Stable Diffusion over HTTP: jobs, AUTOMATIC1111's, OpenAI's and ComfyUI's APIs."}}},
      {"paths", paths.document()},
      {"components", {{"schemas", schemas(limits)}}}};
}

}  // namespace rocm_sd::server
