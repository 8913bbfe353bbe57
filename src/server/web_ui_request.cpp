#include "server/web_ui_request.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "server/http.hpp"
#include "server/web_ui_control.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

constexpr int kUnprocessable = 422;  // pydantic's, which the web UI validates with

// Fields that are options of the engine under other names.
const std::map<std::string, std::string, std::less<>>& direct_options() {
  static const std::map<std::string, std::string, std::less<>> table = {
      {"prompt", "prompt"},
      {"seed", "seed"},
      {"subseed", "variation_seed"},
      {"subseed_strength", "variation_strength"},
      {"batch_size", "batch"},
      {"steps", "steps"},
      {"cfg_scale", "cfg_scale"},
      {"width", "width"},
      {"height", "height"},
      {"eta", "eta"},
      {"image_cfg_scale", "image_cfg_scale"},
      {"mask_blur", "mask_blur"},
      {"denoising_strength", "strength"},
      {"tiling", "tiling"},
  };
  return table;
}

// Fields that may only have a value at which they do nothing. An empty list: any value does nothing here.
const std::map<std::string, std::vector<json>, std::less<>>& neutral_fields() {
  static const std::map<std::string, std::vector<json>, std::less<>> table = {
      {"styles", {json::array()}},
      {"restore_faces", {false}},
      {"s_min_uncond", {0}},
      {"s_churn", {0}},
      {"s_tmax", {}},  // of the churn, which there is not
      {"s_tmin", {}},
      {"s_noise", {1}},
      {"refiner_checkpoint", {"", "None"}},
      {"refiner_switch_at", {}},
      {"disable_extra_networks", {false}},
      {"firstpass_image", {""}},
      {"firstphase_width", {0}},
      {"firstphase_height", {0}},
      {"script_name", {"", "None"}},
      {"script_args", {json::array()}},
      {"save_images", {false}},  // nothing is stored on the server
      {"do_not_save_samples", {}},
      {"do_not_save_grid", {}},
      {"comments", {}},
      {"infotext", {""}},
      {"force_task_id", {}},
      {"override_settings_restore_afterwards", {}},
      {"resize_mode", {0}},
      {"latent_mask", {""}},
      {"initial_noise_multiplier", {1}},
      {"mask_round", {true}},
      {"include_init_images", {}},
  };
  return table;
}

class Reader {
 public:
  Reader(bool img2img, const Catalog& catalog, const DrawLimits& limits)
      : img2img_(img2img), builder_(catalog, limits, kUnprocessable), options_(request_options()) {}

  WebUiRequest read(const json& body) {
    if (!body.is_object()) builder_.refuse("body", "expected an object");
    masked_ = img2img_ && body.contains("mask") && !body["mask"].is_null() && body["mask"] != "";
    for (const auto& [field, value] : body.items())
      if (!value.is_null()) set(field, value);
    // The newer name wins; the older one is sent along by old clients.
    const json sampler = body.value("sampler_name", json());
    const json older = body.value("sampler_index", json());
    set_name("sampler_name", "sampler", sampler.is_null() ? older : sampler);
    set_name("scheduler", "schedule", body.value("scheduler", json()));
    set_seed_origin(body);
    if (!img2img_) set_second_pass(body);
    if (masked_) set_masked_part(body);
    if (img2img_ && !has_image_) builder_.refuse("init_images", "expected a list with one picture");
    out_.job = builder_.finish();
    return std::move(out_);
  }

 private:
  void set(const std::string& field, const json& value) {
    if (field == "sampler_name" || field == "sampler_index" || field == "scheduler") return;
    if (field == "n_iter") {
      builder_.request.rounds = static_cast<int>(builder_.integer(field, value, 1, 1 << 20));
    } else if (field == "negative_prompt") {
      // As the web UI, which takes an empty one for none where the model asks for zeros.
      if (!builder_.text(field, value).empty()) builder_.set_text(field, "negative-prompt", value);
    } else if (field == "send_images") {
      out_.send_images = builder_.flag(field, value);
    } else if (field == "denoising_strength" && !img2img_) {
      builder_.number(field, value);  // of the second pass
    } else if (field == "seed_resize_from_w" || field == "seed_resize_from_h") {
      // Both together.
    } else if (field == "enable_hr" && (!img2img_ || value == false)) {
      builder_.flag(field, value);
    } else if (const auto option = direct_options().find(field); option != direct_options().end()) {
      builder_.set(field, *std::ranges::find(options_, option->second, &KnownOption::name), whole(value));
    } else if (field == "alwayson_scripts") {
      set_scripts(value);
    } else if (field == "override_settings") {
      set_settings(value);
    } else if (field.starts_with("hr_")) {
      // Of the second pass: without it they do nothing, as in the web UI.
      static const std::set<std::string, std::less<>> known = {
          "hr_scale",           "hr_upscaler",  "hr_second_pass_steps",
          "hr_resize_x",        "hr_resize_y",  "hr_checkpoint_name",
          "hr_sampler_name",    "hr_scheduler", "hr_prompt",
          "hr_negative_prompt", "hr_cfg"};
      if (!known.contains(field)) builder_.refuse(field, "this server does not know the field");
    } else if (!set_image_field(field, value)) {
      require_neutral(field, value);
    }
  }

  // Clients in JavaScript and Lua write 20.0 for 20.
  static json whole(const json& value) {
    constexpr double kMax = 9.0e15;
    if (!value.is_number_float()) return value;
    const double number = value.get<double>();
    if (number >= -kMax && number <= kMax && number == static_cast<double>(static_cast<int64_t>(number)))
      return static_cast<int64_t>(number);
    return value;
  }

  // True where the field belongs to img2img and was used.
  bool set_image_field(const std::string& field, const json& value) {
    if (field == "init_images") {
      if (!value.is_array() || value.size() > 1) builder_.refuse(field, "expected a list with one picture");
      if (value.empty()) return true;
      builder_.set_base64(field, "init-image", builder_.text(field, value[0]));
      has_image_ = true;
      return true;
    }
    if (!img2img_) return false;
    if (field == "mask") {
      if (masked_) builder_.set_base64(field, "mask", builder_.text(field, value));
      return true;
    }
    if (field == "mask_blur_x" || field == "mask_blur_y") {
      const auto other = field == "mask_blur_x" ? "mask_blur_y" : "mask_blur_x";
      set_both_blurs(field, other, value);
      return true;
    }
    if (field == "inpainting_mask_invert") {
      const bool flag = value.is_boolean() ? value.get<bool>() : builder_.integer(field, value, 0, 1) == 1;
      builder_.request.inverts_mask = flag && masked_;
      return true;
    }
    return field == "inpainting_fill" || field == "inpaint_full_res" || field == "inpaint_full_res_padding";
  }

  // The fields of a mask, with the web UI's defaults.
  void set_masked_part(const json& body) {
    static constexpr const char* kContents[] = {"fill", "original", "latent noise", "latent nothing"};
    const json fill = given(body, "inpainting_fill", 0),
               whole_picture = given(body, "inpaint_full_res", true),
               padding = given(body, "inpaint_full_res_padding", 0);
    const int64_t content = builder_.integer("inpainting_fill", whole(fill), 0, 3);
    builder_.set_text("inpainting_fill", "masked-content", kContents[content]);
    const bool part = whole_picture.is_boolean()
                          ? whole_picture.get<bool>()
                          : builder_.integer("inpaint_full_res", whole(whole_picture), 0, 1) == 1;
    if (!part) return;
    builder_.set_text("inpaint_full_res", "only-masked", "true");
    builder_.set_text("inpaint_full_res_padding", "only-masked-padding",
                      std::to_string(builder_.integer("inpaint_full_res_padding", whole(padding), 0, 1024)));
  }

  // Where the seed's noise is that of another size; 0 and -1: it is not.
  void set_seed_origin(const json& body) {
    int64_t sides[2] = {};
    const char* const fields[2] = {"seed_resize_from_w", "seed_resize_from_h"};
    for (size_t i = 0; i < 2; ++i)
      sides[i] = builder_.integer(fields[i], whole(given(body, fields[i], -1)), -1, 4096);
    if (sides[0] <= 0 && sides[1] <= 0) return;
    for (size_t i = 0; i < 2; ++i)
      if (sides[i] < 8) builder_.refuse(fields[i], "expected 8 or more, as the other side has");
    builder_.set_text(fields[0], "seed-resize-width", std::to_string(sides[0]));
    builder_.set_text(fields[1], "seed-resize-height", std::to_string(sides[1]));
  }

  // "Hires. fix", with the web UI's defaults.
  void set_second_pass(const json& body) {
    if (given(body, "enable_hr", false) != true) return;
    const auto set = [&](const char* field, const char* option, const json& otherwise) {
      const json value = whole(given(body, field, otherwise));
      if (!value.is_null()) builder_.set_text(field, option, number_text(field, value));
    };
    const bool by_size = given(body, "hr_resize_x", 0) != 0 || given(body, "hr_resize_y", 0) != 0;
    if (!by_size) set("hr_scale", "hires-scale", 2);
    set("hr_resize_x", "hires-width", 0);
    set("hr_resize_y", "hires-height", 0);
    set("hr_second_pass_steps", "hires-steps", 0);
    set("denoising_strength", "hires-denoising-strength", 0.75);
    set("hr_cfg", "hires-cfg-scale", nullptr);
    builder_.set_upscaler("hr_upscaler", builder_.text("hr_upscaler", given(body, "hr_upscaler", "Latent")));
    set_name("hr_sampler_name", "hires-sampler", given(body, "hr_sampler_name", nullptr));
    set_name("hr_scheduler", "hires-schedule", given(body, "hr_scheduler", nullptr));
    for (const auto& [field, option] :
         {std::pair{"hr_prompt", "hires-prompt"}, std::pair{"hr_negative_prompt", "hires-negative-prompt"}})
      if (const std::string text = builder_.text(field, given(body, field, "")); !text.empty())
        builder_.set_text(field, option, text);
    const json model = given(body, "hr_checkpoint_name", "");
    if (model != "" && model != "Use same checkpoint")
      builder_.refuse("hr_checkpoint_name",
                      "not supported: expected none, the second pass has the same model");
  }

  // The field's value, or the default where it is absent or null.
  static json given(const json& body, const char* field, json otherwise) {
    const auto found = body.find(field);
    return found == body.end() || found->is_null() ? std::move(otherwise) : *found;
  }
  std::string number_text(const std::string& field, const json& value) const {
    builder_.number(field, value);
    return value.dump();
  }

  void set_both_blurs(const std::string& field, const std::string& other, const json& value) {
    if (blurs_.contains(other) && blurs_[other] != value)
      builder_.refuse(field, concat("expected the same as ", other));
    blurs_[field] = value;
    builder_.set(field, *std::ranges::find(options_, "mask_blur", &KnownOption::name), whole(value));
  }

  void require_neutral(const std::string& field, const json& value) {
    const auto known = neutral_fields().find(field);
    if (known == neutral_fields().end()) builder_.refuse(field, "this server does not know the field");
    if (known->second.empty() || std::ranges::find(known->second, value) != known->second.end()) return;
    std::string allowed;
    for (const json& one : known->second) allowed += (allowed.empty() ? "" : " or ") + one.dump();
    builder_.refuse(field, concat("not supported: expected ", allowed));
  }

  // Extensions that are installed there send themselves along, switched off.
  void set_scripts(const json& scripts) {
    if (!scripts.is_object()) builder_.refuse("alwayson_scripts", "expected an object");
    for (const auto& [name, script] : scripts.items()) {
      const json args = script.is_object() ? script.value("args", json::array()) : script;
      if ((name == "ControlNet" || name == "controlnet") && args.is_array()) {
        for (size_t i = 0; i < args.size(); ++i)
          if (args[i] != false)
            add_control_unit(builder_, concat("alwayson_scripts.", name, ".args[", i, "]"), args[i]);
        continue;
      }
      const bool off = args.is_array() && (args.empty() || args[0] == false);
      if (!off) builder_.refuse("alwayson_scripts." + name, "not supported: expected no such script");
    }
  }

  void set_settings(const json& settings) {
    if (!settings.is_object()) builder_.refuse("override_settings", "expected an object");
    for (const auto& [name, value] : settings.items()) {
      const std::string field = "override_settings." + name;
      if (name == "sd_model_checkpoint") {
        builder_.request.model = builder_.text(field, value);
      } else if (name == "CLIP_stop_at_last_layers") {
        builder_.set(field, *std::ranges::find(options_, "clip_skip", &KnownOption::name), whole(value));
      } else if (name == "randn_source") {
        const std::string source = builder_.text(field, value);
        if (source != "GPU" && source != "CPU" && source != "NV")
          builder_.refuse(field, "expected GPU, CPU or NV");
        builder_.set_text(field, "rng", source == "CPU" ? "cpu" : "gpu");
      } else if (name == "emphasis") {
        std::string how = builder_.text(field, value);
        std::ranges::transform(how, how.begin(),
                               [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
        builder_.set_text(field, "emphasis", how);
      } else if (name == "samples_format") {
        const std::string format = builder_.text(field, value);
        if (format != "png" && format != "jpg" && format != "jpeg" && format != "webp")
          builder_.refuse(field, "expected png, jpg or webp");
        builder_.request.format = format == "jpg" ? "jpeg" : format;
      } else {
        builder_.refuse(field, "this server does not know the setting");
      }
    }
  }

  void set_name(const std::string& field, const std::string& option, const json& value) {
    if (value.is_null()) return;
    const std::string name = builder_.text(field, value);
    if (name.empty() || name == "Automatic" || name == "automatic" || name == "Use same sampler" ||
        name == "Use same scheduler")
      return;
    builder_.set_text(field, option, name);
  }

  const bool img2img_;
  bool masked_ = false, has_image_ = false;
  RequestBuilder builder_;
  const std::vector<KnownOption> options_;
  std::map<std::string, json> blurs_;
  WebUiRequest out_;
};

}  // namespace

json web_ui_schema(bool img2img) {
  const json text = {{"type", "string"}, {"nullable", true}},
             number = {{"type", "number"}, {"nullable", true}},
             integer = {{"type", "integer"}, {"nullable", true}},
             flag = {{"type", "boolean"}, {"nullable", true}},
             object = {{"type", "object"}, {"nullable", true}};
  json properties = {{"negative_prompt", text},    {"sampler_name", text},       {"sampler_index", text},
                     {"scheduler", text},          {"n_iter", integer},          {"send_images", flag},
                     {"alwayson_scripts", object}, {"override_settings", object}};
  const std::vector<KnownOption> options = request_options();
  for (const auto& [field, name] : direct_options()) {
    const OptionType type = std::ranges::find(options, name, &KnownOption::name)->type;
    properties[field] = type == OptionType::kText      ? text
                        : type == OptionType::kFlag    ? flag
                        : type == OptionType::kInteger ? integer
                                                       : number;
  }
  for (const char* field : {"seed_resize_from_w", "seed_resize_from_h"}) properties[field] = integer;
  if (!img2img) properties["enable_hr"] = flag;
  for (const char* field : {"hr_scale", "hr_second_pass_steps", "hr_resize_x", "hr_resize_y", "hr_cfg"})
    properties[field] = number;
  for (const char* field : {"hr_upscaler", "hr_checkpoint_name", "hr_sampler_name", "hr_scheduler",
                            "hr_prompt", "hr_negative_prompt"})
    properties[field] = text;
  for (const auto& [field, allowed] : neutral_fields()) {
    properties[field] = json::object();
    if (allowed.empty()) continue;
    properties[field]["enum"] = allowed;
    properties[field]["enum"].push_back(nullptr);
    properties[field]["nullable"] = true;
  }
  json required = json::array();
  properties["init_images"] = {
      {"type", "array"}, {"items", {{"type", "string"}}}, {"maxItems", 1}, {"nullable", true}};
  if (img2img) {
    properties["init_images"].update({{"minItems", 1}, {"nullable", false}});
    required.push_back("init_images");
    properties.update({{"mask", text},
                       {"mask_blur_x", integer},
                       {"mask_blur_y", integer},
                       {"inpainting_mask_invert", integer},
                       {"inpainting_fill", integer},
                       {"inpaint_full_res", flag},
                       {"inpaint_full_res_padding", integer}});
  }
  json schema = {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = required;
  return schema;
}

WebUiRequest read_web_ui_request(const json& body, bool img2img, const Catalog& catalog,
                                 const DrawLimits& limits) {
  return Reader(img2img, catalog, limits).read(body);
}

}  // namespace rocm_sd::server
