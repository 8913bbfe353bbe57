// AUTOMATIC1111's "extras": pictures enlarged by a filter or a network, and the lists of what enlarges.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "server/api.hpp"
#include "server/job_request.hpp"
#include "server/web_ui_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

constexpr int kMaxSide = 8192;    // of a result
constexpr double kMaxFactor = 8;  // A1111's slider ends there
constexpr size_t kMaxPictures = 16;

class ExtrasReader {
 public:
  ExtrasReader(bool several, const Catalog& catalog, const DrawLimits& limits)
      : several_(several), catalog_(catalog), builder_(catalog, limits, 422) {}

  JobRequest read(const json& body) {
    if (!body.is_object()) builder_.refuse("body", "expected an object");
    for (const auto& [field, value] : body.items())
      if (!value.is_null()) set(field, value);
    if (files_.empty()) builder_.refuse(several_ ? "imageList" : "image", "expected a picture in base64");
    Enlargement& how = enlargement_;
    if (mode_ == 0) {
      how.width = how.height = 0;
    } else {
      how.factor = 0;
      if (how.width == 0) how.width = 512;
      if (how.height == 0) how.height = 512;
    }
    builder_.set_text("prompt", "prompt", "");
    JobRequest out = builder_.finish();
    out.enlargement = how;
    out.files = std::move(files_);
    out.rounds = static_cast<int>(out.files.size());
    return out;
  }

 private:
  void set(const std::string& field, const json& value) {
    static const std::set<std::string, std::less<>> off = {"gfpgan_visibility", "codeformer_visibility",
                                                           "extras_upscaler_2_visibility"};
    static const std::set<std::string, std::less<>> idle = {"codeformer_weight", "upscaler_2",
                                                            "show_extras_results", "upscale_first"};
    if (field == (several_ ? "imageList" : "image")) {
      read_pictures(field, value);
    } else if (field == "resize_mode") {
      mode_ = builder_.integer(field, value, 0, 1);
    } else if (field == "upscaling_resize") {
      enlargement_.factor = builder_.number(field, value);
      if (!(enlargement_.factor >= 1 && enlargement_.factor <= kMaxFactor))
        builder_.refuse(field, concat("expected 1 to ", kMaxFactor));
    } else if (field == "upscaling_resize_w") {
      enlargement_.width = static_cast<int>(builder_.integer(field, value, 1, kMaxSide));
    } else if (field == "upscaling_resize_h") {
      enlargement_.height = static_cast<int>(builder_.integer(field, value, 1, kMaxSide));
    } else if (field == "upscaling_crop") {
      enlargement_.crops = builder_.flag(field, value);
    } else if (field == "upscaler_1") {
      const std::string name = builder_.text(field, value);
      const auto found =
          name == "None" ? std::optional<std::string>("nearest") : picture_upscaler(catalog_, name);
      if (!found)
        builder_.refuse(field,
                        concat("no upscaler \"", printable(name), "\"; /sdapi/v1/upscalers lists them"));
      enlargement_.upscaler = *found;
    } else if (off.contains(field)) {
      if (builder_.number(field, value) != 0) builder_.refuse(field, "not supported: expected 0");
    } else if (!idle.contains(field)) {
      builder_.refuse(field, "this server does not know the field");
    }
  }

  void read_pictures(const std::string& field, const json& value) {
    if (!several_) {
      if (value != "") files_.push_back({"image", builder_.decode_image(field, builder_.text(field, value))});
      return;
    }
    if (!value.is_array() || value.size() > kMaxPictures)
      builder_.refuse(field, concat("expected a list of at most ", kMaxPictures, " of {\"data\", \"name\"}"));
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string place = concat(field, "[", i, "]");
      if (!value[i].is_object() || !value[i].contains("data"))
        builder_.refuse(place, "expected {\"data\": ..., \"name\": ...}");
      for (const auto& [key, part] : value[i].items())
        if (key != "data" && key != "name")
          builder_.refuse(place + "." + key, "this server does not know the field");
      files_.push_back({"image", builder_.decode_image(place + ".data",
                                                       builder_.text(place + ".data", value[i]["data"]))});
    }
  }

  const bool several_;
  const Catalog& catalog_;
  RequestBuilder builder_;
  Enlargement enlargement_{.upscaler = "nearest", .factor = 2};
  int64_t mode_ = 0;
  std::vector<Attachment> files_;
};

void enlarge(ApiContext& context, Exchange& exchange, bool several) {
  JobRequest request =
      read_extras(read_json_body(exchange.request->body), several, context.catalog, context.options.draw);
  run_job(context, exchange, std::move(request), [several](const JobView& job) {
    require_completed(job);
    json images = json::array();
    for (const auto& image : job.images) images.push_back(encode_base64(image->bytes));
    if (several) return json_response({{"html_info", ""}, {"images", std::move(images)}});
    return json_response({{"html_info", ""}, {"image", images.at(0)}});
  });
}
void extra_single(ApiContext& context, Exchange& exchange) { enlarge(context, exchange, false); }
void extra_batch(ApiContext& context, Exchange& exchange) { enlarge(context, exchange, true); }

void upscalers(ApiContext& context, Exchange& exchange) {
  json list = json::array();
  const auto add = [&](const std::string& name, json file, json scale) {
    list.push_back({{"name", name},
                    {"model_name", nullptr},
                    {"model_path", std::move(file)},
                    {"model_url", nullptr},
                    {"scale", std::move(scale)}});
  };
  for (const char* name : {"None", "Lanczos", "Nearest", "Bicubic"}) add(name, nullptr, 4);
  for (const NamedFile& one : context.catalog.upscalers()) add(one.name, one.path.filename().string(), 4);
  exchange.reply->send(json_response(list));
}

void latent_modes(ApiContext&, Exchange& exchange) {
  json list = json::array();
  for (const std::string& name : latent_upscaler_names()) list.push_back({{"name", name}});
  exchange.reply->send(json_response(list));
}

constexpr Route kRoutes[] = {
    {"POST", "/sdapi/v1/extra-single-image", extra_single, BodySize::kImages},
    {"POST", "/sdapi/v1/extra-batch-images", extra_batch, BodySize::kImages},
    {"GET", "/sdapi/v1/upscalers", upscalers},
    {"GET", "/sdapi/v1/latent-upscale-modes", latent_modes},
};

}  // namespace

JobRequest read_extras(const json& body, bool several, const Catalog& catalog, const DrawLimits& limits) {
  return ExtrasReader(several, catalog, limits).read(body);
}

json extras_schema(bool several) {
  const json picture = {{"type", "string"}};
  json properties = {{"resize_mode", {{"type", "integer"}, {"minimum", 0}, {"maximum", 1}}},
                     {"upscaling_resize", {{"type", "number"}, {"minimum", 1}, {"maximum", kMaxFactor}}},
                     {"upscaling_resize_w", {{"type", "integer"}, {"minimum", 1}, {"maximum", kMaxSide}}},
                     {"upscaling_resize_h", {{"type", "integer"}, {"minimum", 1}, {"maximum", kMaxSide}}},
                     {"upscaling_crop", {{"type", "boolean"}}},
                     {"upscaler_1", {{"type", "string"}}},
                     {"upscaler_2", {{"type", "string"}}},
                     {"show_extras_results", {{"type", "boolean"}}},
                     {"upscale_first", {{"type", "boolean"}}},
                     {"codeformer_weight", {{"type", "number"}}}};
  for (const char* field : {"gfpgan_visibility", "codeformer_visibility", "extras_upscaler_2_visibility"})
    properties[field] = {{"type", "number"}, {"enum", {0}}};
  const json item = {{"type", "object"},
                     {"properties", {{"data", picture}, {"name", picture}}},
                     {"required", {"data"}},
                     {"additionalProperties", false}};
  if (several)
    properties["imageList"] = {
        {"type", "array"}, {"items", item}, {"minItems", 1}, {"maxItems", kMaxPictures}};
  else
    properties["image"] = picture;
  return {{"type", "object"},
          {"properties", properties},
          {"required", {several ? "imageList" : "image"}},
          {"additionalProperties", false}};
}

std::span<const Route> extras_routes() { return kRoutes; }

}  // namespace rocm_sd::server
