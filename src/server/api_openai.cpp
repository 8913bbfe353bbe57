// OpenAI's images API: /v1/images/generations, /v1/images/edits, /v1/models, with its error objects. Beside
// OpenAI's fields a request may hold those of /v1/jobs ("seed", "steps", "negative_prompt", ...).
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "pipeline/options.hpp"
#include "server/api.hpp"
#include "server/job_request.hpp"
#include "server/multipart.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

constexpr int kMaxImages = 10;

struct ImagesRequest {
  JobRequest job;
  std::string output_format = "png", response_format = "b64_json", quality = "auto";
  bool stream = false;
};

int64_t unix_seconds(JobTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

// "512x768" -> width and height; "auto" is the model's own size.
void set_size(RequestBuilder& builder, const std::string& size) {
  if (size == "auto") return;
  const size_t x = size.find('x');
  try {
    require<UsageError>(x != size.npos, "");
    parse_integer(std::string_view(size).substr(0, x), 8, 4096);
    parse_integer(std::string_view(size).substr(x + 1), 8, 4096);
  } catch (const UsageError&) {
    builder.refuse("size",
                   concat("expected auto or WIDTHxHEIGHT such as 512x512, got \"", printable(size), "\""));
  }
  builder.set_text("size", "width", size.substr(0, x));
  builder.set_text("size", "height", size.substr(x + 1));
}

// OpenAI's words for how much work is spent: 10, 20 or 30 steps, where neither the request nor a distilled
// model says how many.
void set_quality(RequestBuilder& builder, ImagesRequest& out, const std::string& quality) {
  out.quality = quality;
  if (quality == "low")
    builder.request.steps_factor = 0.5;
  else if (quality == "high" || quality == "hd")
    builder.request.steps_factor = 1.5;
  else if (quality != "auto" && quality != "standard" && quality != "medium")
    builder.refuse("quality", "expected auto, low, medium, standard, high or hd");
}

std::string one_of(RequestBuilder& builder, const std::string& field, const json& value,
                   std::initializer_list<const char*> allowed) {
  const std::string text = builder.text(field, value);
  std::string names;
  for (const char* name : allowed) {
    if (text == name) return text;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  builder.refuse(field, concat("expected ", names, ", got \"", printable(text), "\""));
}

// True where the field is OpenAI's own.
bool set_openai_field(RequestBuilder& builder, ImagesRequest& out, const std::string& field,
                      const json& value) {
  if (value.is_null()) return true;
  if (field == "model") {
    builder.request.model = builder.text(field, value);
  } else if (field == "n") {
    builder.request.rounds = static_cast<int>(builder.integer(field, value, 1, kMaxImages));
  } else if (field == "size") {
    set_size(builder, builder.text(field, value));
  } else if (field == "quality") {
    set_quality(builder, out, builder.text(field, value));
  } else if (field == "response_format") {
    out.response_format = one_of(builder, field, value, {"b64_json", "url"});
  } else if (field == "output_format") {
    out.output_format = one_of(builder, field, value, {"png", "jpeg", "webp"});
  } else if (field == "output_compression") {
    builder.request.quality = std::max<int>(1, static_cast<int>(builder.integer(field, value, 0, 100)));
  } else if (field == "background") {
    one_of(builder, field, value, {"auto", "opaque"});  // there is no transparency
  } else if (field == "moderation") {
    one_of(builder, field, value, {"auto", "low"});  // nothing is moderated
  } else if (field == "stream") {
    out.stream = builder.flag(field, value);
  } else if (field == "partial_images") {
    // At most so many: a picture of fewer steps has fewer.
    builder.request.partials = static_cast<int>(builder.integer(field, value, 0, 3));
  } else if (field == "user" || field == "safety_identifier") {
    builder.text(field, value);
  } else {
    return false;
  }
  return true;
}

ImagesRequest read_fields(RequestBuilder& builder, const std::vector<std::pair<std::string, json>>& fields) {
  ImagesRequest out;
  const std::vector<KnownOption> options = request_options();
  for (const auto& [field, value] : fields) {
    if (set_openai_field(builder, out, field, value)) continue;
    const auto option = std::ranges::find(options, field, &KnownOption::name);
    if (option == options.end()) builder.refuse(field, "this server does not know the field");
    builder.set(field, *option, value);
  }
  const bool has_prompt = std::ranges::any_of(builder.request.options,
                                              [](const auto& option) { return option.first == "prompt"; });
  if (!has_prompt) builder.refuse("prompt", "is required");
  builder.request.format = out.output_format;
  if (!out.stream) builder.request.partials = 0;  // there is nothing to send them by
  out.job = builder.finish();
  return out;
}

json data_of(const JobView& job, size_t index, const ImagesRequest& request, std::string_view host) {
  json one = {{"revised_prompt", nullptr}};
  if (request.response_format == "url")
    one["url"] = concat("http://", host, "/v1/jobs/", job.id, "/images/", index);
  else
    one["b64_json"] = encode_base64(job.images[index]->bytes);
  return one;
}

json result_json(const JobView& job, const ImagesRequest& request, std::string_view host) {
  json data = json::array();
  for (size_t i = 0; i < job.images.size(); ++i) data.push_back(data_of(job, i, request, host));
  json body = {{"created", unix_seconds(job.finished)},
               {"data", std::move(data)},
               {"output_format", request.output_format},
               {"quality", request.quality},
               {"background", "opaque"}};
  if (!job.images.empty()) body["size"] = concat(job.images[0]->width, "x", job.images[0]->height);
  return body;
}

json stream_event(const std::string& name, const std::string& file, JobTime time, int width, int height,
                  const ImagesRequest& request) {
  return {{"type", name},
          {"b64_json", encode_base64(file)},
          {"created_at", unix_seconds(time)},
          {"size", concat(width, "x", height)},
          {"quality", request.quality},
          {"background", "opaque"},
          {"output_format", request.output_format}};
}

std::string event_text(const std::string& name, const json& body) {
  return concat("event: ", name, "\ndata: ", json_text(body), "\n\n");
}

// Partial pictures as they come, then an event with each picture.
void stream_job(ApiContext& context, Exchange& exchange, ImagesRequest request, const char* kind) {
  const bool partial = request.job.partials > 0;
  request.job.awaited = true;
  const std::string id = submit_job(context, std::move(request.job), exchange.request->client);
  exchange.reply->begin({200, "text/event-stream", "", {{"Cache-Control", "no-store"}}});
  exchange.reply->on_gone([&context, id] { context.jobs.cancel(id); });
  const auto send = [&context, id, request, kind, reply = exchange.reply] {
    const auto job = context.jobs.view(id);
    const auto event = [&](const std::string& name, const json& body) {
      reply->write(event_text(name, body));
    };
    if (job && job->state == JobState::kCompleted) {
      for (const auto& image : job->images) {
        const std::string name = concat(kind, ".completed");
        event(name, stream_event(name, image->bytes, job->finished, image->width, image->height, request));
      }
    } else {
      const std::string message = job ? job->error.message : "the result has been dropped";
      event("error", {{"type", "error"},
                      {"error",
                       {{"message", message},
                        {"type", "server_error"},
                        {"param", nullptr},
                        {"code", "generation_failed"}}}});
    }
    reply->end();
  };
  if (partial) {
    const auto tell = [reply = exchange.reply, request, kind, last = 0,
                       index = 0](const JobPreview& preview) mutable {
      if (!preview.partial) return;
      index = preview.step > last ? index : 0;  // of the next picture
      last = preview.step;
      const std::string name = concat(kind, ".partial_image");
      json body = stream_event(name, preview.bytes, std::chrono::system_clock::now(), preview.width,
                               preview.height, request);
      body["partial_image_index"] = index++;
      reply->write(event_text(name, body));
    };
    context.jobs.watch_previews(id, 1, tell, JobStore::Looks::kNone);
  }
  context.jobs.watch(id, 0, [&context, send](const std::string&, const std::string&, bool is_final) {
    if (is_final) context.post(send);
  });
}

void answer(ApiContext& context, Exchange& exchange, ImagesRequest request, const char* kind) {
  if (request.stream) return stream_job(context, exchange, std::move(request), kind);
  JobRequest job = std::move(request.job);
  const std::string host(exchange.request->header("host"));
  run_job(context, exchange, std::move(job), [request = std::move(request), host](const JobView& view) {
    require_completed(view);
    return json_response(result_json(view, request, host));
  });
}

void generations(ApiContext& context, Exchange& exchange) {
  const json body = read_json_body(exchange.request->body);
  RequestBuilder builder(context.catalog, context.options.draw, 400);
  if (!body.is_object()) builder.refuse("body", "expected an object");
  std::vector<std::pair<std::string, json>> fields;
  for (const auto& [key, value] : body.items()) fields.emplace_back(key, value);
  answer(context, exchange, read_fields(builder, fields), "image_generation");
}

// A form has texts alone: numbers and booleans are told by what the field takes.
json form_value(const std::string& name, const std::string& text) {
  const auto option_type = [&] {
    for (const KnownOption& option : request_options())
      if (option.name == name) return option.type;
    return OptionType::kText;
  };
  const bool number = name == "n" || name == "output_compression" || name == "partial_images";
  const OptionType type = number             ? OptionType::kInteger
                          : name == "stream" ? OptionType::kFlag
                                             : option_type();
  if (type == OptionType::kFlag && (text == "true" || text == "false")) return text == "true";
  if (type == OptionType::kInteger || type == OptionType::kNumber) {
    const json parsed = json::parse(text, nullptr, false);
    if (parsed.is_number()) return parsed;
  }
  return text;
}

void edits(ApiContext& context, Exchange& exchange) {
  const std::string_view type = exchange.request->header("content-type");
  RequestBuilder builder(context.catalog, context.options.draw, 400);
  if (!type.starts_with("multipart/form-data"))
    builder.refuse("Content-Type", "expected multipart/form-data");
  std::vector<std::pair<std::string, json>> fields;
  bool has_image = false;
  for (FormField& field : parse_multipart(exchange.request->body, multipart_boundary(type))) {
    if (field.name == "image" || field.name == "image[]") {
      if (std::exchange(has_image, true)) builder.refuse("image", "expected one picture to edit");
      builder.set_image("image", "init-image", std::move(field.value));
    } else if (field.name == "mask") {
      builder.set_image("mask", "mask", std::move(field.value));  // what is transparent is repainted
    } else {
      const bool twice =
          std::ranges::any_of(fields, [&](const auto& known) { return known.first == field.name; });
      if (twice) builder.refuse(field.name, "came twice");
      fields.emplace_back(field.name, form_value(field.name, field.value));
    }
  }
  if (!has_image) builder.refuse("image", "is required");
  answer(context, exchange, read_fields(builder, fields), "image_edit");
}

json model_json(const ModelEntry& model) {
  return {{"id", model.name}, {"object", "model"}, {"created", 0}, {"owned_by", "rocm-sd"}};
}

void models(ApiContext& context, Exchange& exchange) {
  json data = json::array();
  for (const ModelEntry& model : context.catalog.models()) data.push_back(model_json(model));
  exchange.reply->send(json_response({{"object", "list"}, {"data", data}}));
}

void model(ApiContext& context, Exchange& exchange) {
  exchange.reply->send(json_response(model_json(context.catalog.find(exchange.part("id")))));
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/images/generations", generations, BodySize::kImages},
    {"POST", "/v1/images/edits", edits, BodySize::kImages},
    {"GET", "/v1/models", models},
    {"GET", "/v1/models/{id}", model},
};

}  // namespace

std::span<const Route> openai_routes() { return kRoutes; }

}  // namespace rocm_sd::server
