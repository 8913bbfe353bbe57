// AUTOMATIC1111's API, as its clients use it: /sdapi/v1.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "pipeline/infotext.hpp"
#include "rocm_sd/image.hpp"
#include "rocm_sd/pipeline.hpp"
#include "schedulers/sampler.hpp"
#include "server/api.hpp"
#include "server/web_ui_control.hpp"
#include "server/web_ui_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

std::string local_time(JobTime time) {
  const time_t seconds = std::chrono::system_clock::to_time_t(time);
  tm parts;
  localtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof(text), "%Y%m%d%H%M%S", &parts);
  return text;
}

double number_of(const Infotext& text, const char* key, double otherwise) {
  const std::string value = text.get(key);
  return value.empty() ? otherwise : std::strtod(value.c_str(), nullptr);
}

// What clients read as json.loads(reply["info"]).
json info_json(const JobView& job) {
  json seeds = json::array(), subseeds = json::array(), infotexts = json::array(), prompts = json::array(),
       negatives = json::array();
  Infotext first;
  for (const auto& image : job.images) {
    const Infotext text = parse_infotext(image->parameters);
    if (infotexts.empty()) first = text;
    seeds.push_back(image->seed);
    subseeds.push_back(static_cast<int64_t>(number_of(text, "Variation seed", -1)));
    infotexts.push_back(image->parameters);
    prompts.push_back(text.prompt);
    negatives.push_back(text.negative_prompt);
  }
  const bool any = !job.images.empty();
  const std::string resized = first.get("Seed resize from");  // "512x768"
  const auto text_or_null = [&](const char* key) {
    return first.get(key).empty() ? json() : json(first.get(key));
  };
  return {{"prompt", first.prompt},
          {"all_prompts", prompts},
          {"negative_prompt", first.negative_prompt},
          {"all_negative_prompts", negatives},
          {"seed", any ? seeds[0] : json(-1)},
          {"all_seeds", seeds},
          {"subseed", any ? subseeds[0] : json(-1)},
          {"all_subseeds", subseeds},
          {"subseed_strength", number_of(first, "Variation seed strength", 0)},
          {"width", any ? job.images[0]->width : 0},
          {"height", any ? job.images[0]->height : 0},
          {"sampler_name", first.get("Sampler")},
          {"scheduler", first.get("Schedule type")},
          {"cfg_scale", number_of(first, "CFG scale", 7)},
          {"steps", static_cast<int64_t>(number_of(first, "Steps", job.request.steps))},
          {"batch_size", job.request.batch},
          {"restore_faces", false},
          {"face_restoration_model", nullptr},
          {"sd_model_name", job.request.model},
          {"sd_model_hash", text_or_null("Model hash")},
          {"sd_vae_name", text_or_null("VAE")},
          {"sd_vae_hash", text_or_null("VAE hash")},
          {"seed_resize_from_w", resized.empty() ? -1 : std::atoi(resized.c_str())},
          {"seed_resize_from_h", resized.empty() ? -1 : std::atoi(resized.c_str() + resized.find('x') + 1)},
          {"denoising_strength", number_of(first, "Denoising strength", 0)},
          {"extra_generation_params", json::object()},
          {"index_of_first_image", 0},
          {"infotexts", infotexts},
          {"styles", json::array()},
          {"job_timestamp", local_time(job.started)},
          {"clip_skip", static_cast<int>(number_of(first, "Clip skip", 1))},
          {"is_using_inpainting_conditioning", false},
          {"version", version()},
          {"interrupted", job.state == JobState::kCancelled}};
}

void draw(ApiContext& context, Exchange& exchange, bool img2img) {
  json body = read_json_body(exchange.request->body);
  WebUiRequest request = read_web_ui_request(body, img2img, context.catalog, context.options.draw);
  if (!body.value("include_init_images", json()).is_boolean() || !body["include_init_images"].get<bool>()) {
    if (img2img) body["init_images"] = nullptr;
    if (img2img) body["mask"] = nullptr;
  }
  run_job(context, exchange, std::move(request.job),
          [body = std::move(body), send = request.send_images](const JobView& job) {
            if (job.state == JobState::kFailed) require_completed(job);  // an interrupt ends well here
            std::vector<std::string_view> files;
            if (send)
              for (const auto& image : job.images) files.push_back(image->bytes);
            const json rest = {{"parameters", body},
                               {"info", info_json(job).dump(-1, ' ', false, json::error_handler_t::replace)}};
            return json_text_response(json_text_with_files("images", files, rest));
          });
}

void txt2img(ApiContext& context, Exchange& exchange) { draw(context, exchange, false); }
void img2img(ApiContext& context, Exchange& exchange) { draw(context, exchange, true); }

void progress(ApiContext& context, Exchange& exchange) {
  json state = {{"skipped", false}, {"interrupted", false}, {"stopping_generation", false},
                {"job", ""},        {"job_count", 0},       {"job_timestamp", "0"},
                {"job_no", 0},      {"sampling_step", 0},   {"sampling_steps", 0}};
  json body = {{"progress", 0.0},
               {"eta_relative", 0.0},
               {"state", state},
               {"current_image", nullptr},
               {"textinfo", nullptr}};
  for (const std::string& id : context.jobs.running()) {
    const auto job = context.jobs.view(id);
    if (!job) continue;
    const auto skip = exchange.request->query.find("skip_current_image");
    if (skip == exchange.request->query.end() || (skip->second != "true" && skip->second != "1")) {
      context.jobs.look(id);  // the next answer has what comes of it
      if (job->preview) body["current_image"] = encode_base64(job->preview->bytes);
    }
    const double done = job->fraction();
    const bool sampling = job->progress.stage == "sample";
    body["progress"] = done;
    body["eta_relative"] = done > 0 ? job->seconds / done - job->seconds : 0.0;
    body["state"].update({{"job", job->id},
                          {"job_count", job->request.rounds},
                          {"job_timestamp", local_time(job->started)},
                          {"job_no", job->progress.round},
                          {"sampling_step", sampling ? job->progress.step : 0},
                          {"sampling_steps", sampling ? job->progress.total : job->request.steps}});
    break;
  }
  exchange.reply->send(json_response(body));
}

void interrupt(ApiContext& context, Exchange& exchange) {
  context.jobs.cancel_running();
  exchange.reply->send(json_response(json::object()));
}

void skip(ApiContext& context, Exchange& exchange) {
  context.jobs.skip_running();
  exchange.reply->send(json_response(json::object()));
}

void get_options(ApiContext& context, Exchange& exchange) {
  exchange.reply->send(json_response({{"sd_model_checkpoint", model_title(context.catalog.current())},
                                      {"sd_checkpoint_hash", nullptr},
                                      {"sd_vae", "Automatic"},
                                      {"samples_format", "png"},
                                      {"CLIP_stop_at_last_layers", 1},
                                      {"randn_source", "GPU"},
                                      {"emphasis", "Original"}}));
}

void set_options(ApiContext& context, Exchange& exchange) {
  const json body = read_json_body(exchange.request->body);
  if (!body.is_object()) throw RequestError({422, "invalid_value", "expected an object", "body"});
  for (const auto& [name, value] : body.items())
    if (name != "sd_model_checkpoint" || !value.is_string())
      throw RequestError(
          {422, "invalid_value",
           concat(printable(name), ": only sd_model_checkpoint can be set here, to a model's title"), name});
  if (body.contains("sd_model_checkpoint")) context.catalog.set_current(body["sd_model_checkpoint"]);
  exchange.reply->send(json_response(nullptr));
}

void samplers_list(ApiContext&, Exchange& exchange) {
  json list = json::array();
  for (const SamplerRow& row : samplers()) {
    json aliases = {row.name};
    for (const std::string_view alias : row.aliases) aliases.push_back(alias);
    list.push_back({{"name", row.label}, {"aliases", aliases}, {"options", json::object()}});
  }
  exchange.reply->send(json_response(list));
}

void schedulers_list(ApiContext&, Exchange& exchange) {
  json list = json::array({{{"name", "automatic"},
                            {"label", "Automatic"},
                            {"aliases", nullptr},
                            {"default_rho", -1.0},
                            {"need_inner_model", false}}});
  for (const std::string& name : schedule_names_list())
    list.push_back({{"name", name},
                    {"label", schedule_label(*parse_schedule(name))},
                    {"aliases", nullptr},
                    {"default_rho", name == "karras"            ? 7.0
                                    : name == "polyexponential" ? 1.0
                                                                : -1.0},
                    {"need_inner_model", false}});
  exchange.reply->send(json_response(list));
}

void models_list(ApiContext& context, Exchange& exchange) {
  json list = json::array();
  for (const ModelEntry& model : context.catalog.models())
    list.push_back({{"title", model_title(model)},
                    {"model_name", model.name},
                    {"hash", nullptr},
                    {"sha256", nullptr},
                    {"filename", model_title(model)},
                    {"config", nullptr}});
  exchange.reply->send(json_response(list));
}

void loras_list(ApiContext& context, Exchange& exchange) {
  json list = json::array();
  for (const NamedFile& lora : context.catalog.loras())
    list.push_back({{"name", lora.name},
                    {"alias", lora.name},
                    {"path", lora.path.filename().string()},
                    {"metadata", json::object()}});
  exchange.reply->send(json_response(list));
}

// There are none: the lists are true.
void empty_list(ApiContext&, Exchange& exchange) { exchange.reply->send(json_response(json::array())); }
void embeddings(ApiContext& context, Exchange& exchange) {
  json loaded = json::object();
  for (const NamedFile& one : context.catalog.embeddings())
    loaded[one.name] = {{"step", nullptr},
                        {"sd_checkpoint", nullptr},
                        {"sd_checkpoint_name", nullptr},
                        {"shape", nullptr},
                        {"vectors", nullptr}};
  exchange.reply->send(json_response({{"loaded", loaded}, {"skipped", json::object()}}));
}

// The ControlNet extension's own paths.
void control_version(ApiContext&, Exchange& exchange) {
  exchange.reply->send(json_response({{"version", 3}}));
}
void control_models(ApiContext& context, Exchange& exchange) {
  json list = json::array();
  for (const NamedFile& one : context.catalog.controls()) list.push_back(one.name);
  exchange.reply->send(json_response({{"model_list", list}}));
}
void control_modules(ApiContext&, Exchange& exchange) {
  exchange.reply->send(json_response({{"module_list", control_module_names()}}));
}
void scripts(ApiContext&, Exchange& exchange) {
  exchange.reply->send(json_response({{"txt2img", json::array()}, {"img2img", json::array()}}));
}

void cmd_flags(ApiContext& context, Exchange& exchange) {
  const ServerOptions& o = context.options;
  exchange.reply->send(json_response({{"api", true},
                                      {"port", o.port},
                                      {"listen", !is_loopback(o.address)},
                                      {"nowebui", !o.page},
                                      {"device_id", nullptr},
                                      {"lowvram", false},
                                      {"medvram", false}}));
}

// The first GPU's, as its worker saw it when it had loaded a model.
json device_memory(const ApiContext& context) {
  for (const auto& worker : context.workers) {
    const WorkerStatus status = worker->status();
    if (status.memory_total == 0 || status.device_name.starts_with("host")) continue;
    const uint64_t total = status.memory_total, free = status.memory_free;
    return {{"system", {{"free", free}, {"used", total - free}, {"total", total}}}};
  }
  return {{"error", "no model is loaded on a GPU"}};
}

void memory(ApiContext& context, Exchange& exchange) {
  const auto [total, free] = host_memory();
  exchange.reply->send(json_response({{"ram", {{"free", free}, {"used", total - free}, {"total", total}}},
                                      {"cuda", device_memory(context)}}));
}

void png_info(ApiContext&, Exchange& exchange) {
  const json body = read_json_body(exchange.request->body);
  if (!body.is_object() || !body.contains("image") || !body["image"].is_string())
    throw RequestError({422, "invalid_value", "image: expected a picture in base64", "image"});
  const auto bytes = decode_data_url(body["image"].get_ref<const std::string&>());
  if (!bytes) throw RequestError({422, "invalid_value", "image: expected a picture in base64", "image"});
  std::string text;
  try {
    text = read_parameters(std::vector<uint8_t>(bytes->begin(), bytes->end()), "image");
  } catch (const rocm_sd::Error& e) {
    throw RequestError({422, "invalid_value", e.what(), "image"});
  }
  const Infotext info = parse_infotext(text);
  json parameters = json::object();
  if (!text.empty()) parameters = {{"Prompt", info.prompt}, {"Negative prompt", info.negative_prompt}};
  for (const auto& [key, value] : info.fields) parameters[key] = value;
  json items = json::object();
  if (!text.empty()) items["parameters"] = text;
  exchange.reply->send(json_response({{"info", text}, {"items", items}, {"parameters", parameters}}));
}

void nothing(ApiContext&, Exchange& exchange) { exchange.reply->send(json_response(nullptr)); }

constexpr Route kRoutes[] = {
    {"POST", "/sdapi/v1/txt2img", txt2img, BodySize::kImages},
    {"POST", "/sdapi/v1/img2img", img2img, BodySize::kImages},
    {"GET", "/sdapi/v1/progress", progress},
    {"POST", "/sdapi/v1/interrupt", interrupt},
    {"POST", "/sdapi/v1/skip", skip},
    {"GET", "/sdapi/v1/options", get_options},
    {"POST", "/sdapi/v1/options", set_options},
    {"GET", "/sdapi/v1/samplers", samplers_list},
    {"GET", "/sdapi/v1/schedulers", schedulers_list},
    {"GET", "/sdapi/v1/sd-models", models_list},
    {"GET", "/sdapi/v1/sd-vae", empty_list},
    {"GET", "/sdapi/v1/loras", loras_list},
    {"GET", "/sdapi/v1/hypernetworks", empty_list},
    {"GET", "/sdapi/v1/face-restorers", empty_list},
    {"GET", "/sdapi/v1/realesrgan-models", empty_list},
    {"GET", "/sdapi/v1/prompt-styles", empty_list},
    {"GET", "/sdapi/v1/embeddings", embeddings},
    {"GET", "/sdapi/v1/scripts", scripts},
    {"GET", "/sdapi/v1/cmd-flags", cmd_flags},
    {"GET", "/sdapi/v1/memory", memory},
    {"POST", "/sdapi/v1/png-info", png_info, BodySize::kImages},
    {"GET", "/controlnet/version", control_version},
    {"GET", "/controlnet/model_list", control_models},
    {"GET", "/controlnet/module_list", control_modules},
    {"POST", "/sdapi/v1/refresh-checkpoints", nothing},
    {"POST", "/sdapi/v1/refresh-loras", nothing},
};

}  // namespace

std::span<const Route> web_ui_routes() { return kRoutes; }

}  // namespace rocm_sd::server
