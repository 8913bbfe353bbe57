#include "server/web_ui_control.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

// The extension's words for the engine's preprocessors, and how many of its thresholds each takes.
struct Module {
  const char* name;
  int thresholds = 0;
  double a = 0, b = 0;  // in place of a negative one
};
const std::map<std::string, Module, std::less<>>& modules() {
  static const std::map<std::string, Module, std::less<>> table = {
      {"none", {"none"}},
      {"canny", {"canny", 2, 100, 200}},
      {"invert (from white bg & black line)", {"invert"}},
      {"invert", {"invert"}},
      {"tile_resample", {"tile", 1, 1}},
      {"threshold", {"threshold", 1, 127}},
      {"scribble_xdog", {"scribble_xdog", 1, 32}},
      {"inpaint_only", {"inpaint"}},
  };
  return table;
}

// Modules with which a unit is an IP-Adapter; the image encoder is told from the adapter. Forge's last.
constexpr const char* kImageModules[] = {
    "ip-adapter-auto",   "ip-adapter_clip_sd15", "ip-adapter_clip_sdxl",   "ip-adapter_clip_sdxl_plus_vith",
    "ip-adapter_clip_h", "ip-adapter_clip_g",    "CLIP-ViT-H (IPAdapter)", "CLIP-ViT-bigG (IPAdapter)",
};

// The same for FaceID's adapters. The face model that reads a face from a picture is not here: the unit
// brings what it gave.
constexpr const char* kFaceModules[] = {"ip-adapter_face_id", "ip-adapter_face_id_plus",
                                        "InsightFace (IPAdapter)", "InsightFace+CLIP-H (IPAdapter)"};

// Of the user interface, of memory, of the second pass, of other kinds of units: no effect here.
const std::set<std::string, std::less<>> kIdleFields = {
    "pixel_perfect", "low_vram",    "lowvram",    "processor_res", "hr_option",   "save_detected_map",
    "input_mode",    "is_ui",       "output_dir", "pulid_mode",    "type_filter", "inpaint_crop_input_image",
    "use_mask",      "batch_images"};
// Fields that may only be empty, or false.
const std::set<std::string, std::less<>> kEmptyFields = {
    "advanced_weighting", "loopback",       "animatediff_batch",  "batch_modifiers",
    "batch_image_files",  "batch_mask_dir", "batch_keyframe_idx", "generated_image",
    "image_fg",           "mask_image_fg",  "batch_image_dir",    "batch_input_gallery",
    "batch_mask_gallery"};

bool is_empty(const json& value) {
  return value.is_null() || value == false || value == "" || value == json::array();
}

using Names = std::initializer_list<std::pair<const char*, const char*>>;

// A name, or its number where the names are numbered. A name may come several times under other labels.
std::string one_of(const RequestBuilder& builder, const std::string& field, const json& value, Names names,
                   size_t numbered = 0) {
  std::string known;
  size_t index = 0;
  for (const auto& [label, name] : names) {
    const bool is_index = index < numbered && value.is_number_integer() && value == index;
    if (value == label || is_index) return name;
    if (index++ < numbered || numbered == 0) known += concat(known.empty() ? "" : ", ", "\"", label, "\"");
  }
  builder.refuse(field, concat("expected ", known));
}

class Unit {
 public:
  Unit(RequestBuilder& builder, std::string place) : builder_(builder), place_(std::move(place)) {}

  void add(const json& unit) {
    if (!unit.is_object()) builder_.refuse(place_, "expected an object");
    if (const auto enabled = unit.find("enabled"); enabled != unit.end() && !enabled->is_null())
      if (!builder_.flag(at("enabled"), *enabled)) return;
    if (const auto module = unit.find("module"); module != unit.end() && !module->is_null())
      module_ = builder_.text(at("module"), *module);
    for (const auto& [key, value] : unit.items())
      if (!value.is_null()) read(key, value);
    check_inputs();
    if (const size_t hash = model_.rfind(" ["); hash != model_.npos) model_.resize(hash);
    if (is_image_prompt())
      add_ip_adapter();
    else
      add_control();
  }

 private:
  std::string at(std::string_view key) const { return concat(place_, ".", key); }
  bool reads_faces() const { return std::ranges::find(kFaceModules, module_) != std::end(kFaceModules); }
  bool is_image_prompt() const {
    return reads_faces() || std::ranges::find(kImageModules, module_) != std::end(kImageModules);
  }

  void check_inputs() const {
    const bool given = !prompt_.embeds.empty();
    if (given && !is_image_prompt())
      builder_.refuse(at("ipadapter_input"), "expected an ip-adapter module beside it");
    if (reads_faces() && !given)
      builder_.refuse(at("module"),
                      "there is no face model here: expected what one gave of the face in ipadapter_input");
    if (images_.empty() && !given) builder_.refuse(at("image"), "expected a picture in base64");
  }

  void read(const std::string& key, const json& value) {
    const std::string field = at(key);
    if (key == "enabled" || key == "module" || kIdleFields.contains(key)) return;
    if (kEmptyFields.contains(key)) {
      if (!is_empty(value)) builder_.refuse(field, "not supported: expected nothing");
    } else if (key == "image" || key == "input_image") {
      read_images(field, value);
    } else if (key == "mask" || key == "mask_image") {
      read_mask(field, value);
    } else if (key == "effective_region_mask") {
      if (value != "") region_ = builder_.decode_image(field, builder_.text(field, value));
    } else if (key == "ipadapter_input") {
      if (!is_empty(value)) builder_.read_embeds(field, value, prompt_);
    } else if (key == "model") {
      model_ = builder_.text(field, value);
    } else if (key == "weight") {
      weight_ = builder_.number(field, value);
    } else if (key == "guidance_start") {
      start_ = builder_.number(field, value);
    } else if (key == "guidance_end" || key == "guidance") {
      end_ = builder_.number(field, value);
    } else if (key == "threshold_a") {
      low_ = builder_.number(field, value);
    } else if (key == "threshold_b") {
      high_ = builder_.number(field, value);
    } else {
      read_choice(key, field, value);
    }
  }

  void read_choice(const std::string& key, const std::string& field, const json& value) {
    if (key == "resize_mode") {
      resize_ = one_of(builder_, field, value,
                       {{"Just Resize", "just"},
                        {"Crop and Resize", "crop"},
                        {"Resize and Fill", "fill"},
                        {"Inner Fit (Scale to Fit)", "crop"},
                        {"Scale to Fit (Inner Fit)", "crop"},
                        {"Outer Fit (Shrink to Fit)", "fill"},
                        {"Envelope (Outer Fit)", "fill"}},
                       3);
    } else if (key == "control_mode") {
      mode_ = one_of(builder_, field, value,
                     {{"Balanced", "balanced"},
                      {"My prompt is more important", "prompt"},
                      {"ControlNet is more important", "control"}},
                     3);
    } else if (key == "union_control_type") {
      type_ = one_of(builder_, field, value,
                     {{"Unknown", "none"},
                      {"OpenPose", "openpose"},
                      {"Depth", "depth"},
                      {"Soft Edge", "softedge"},
                      {"Hard Edge", "canny"},
                      {"Normal Map", "normal"},
                      {"Segmentation", "segment"},
                      {"Tile", "tile"},
                      {"Inpaint", "inpaint"}});
    } else {
      builder_.refuse(field, "this server does not know the field");
    }
  }

  // A picture; {"image", "mask"}; or a list of these, of an IP-Adapter.
  void read_images(const std::string& field, const json& value) {
    if (value.is_array()) {
      for (size_t i = 0; i < value.size(); ++i) read_images(concat(field, "[", i, "]"), value[i]);
    } else if (value.is_object()) {
      for (const auto& [key, part] : value.items()) {
        if (key == "image")
          read_images(field + ".image", part);
        else if (key == "mask")
          read_mask(field + ".mask", part);
        else
          builder_.refuse(concat(field, ".", key), "this server does not know the field");
      }
    } else if (value != "") {
      images_.push_back(builder_.decode_image(field, builder_.text(field, value)));
    }
  }

  // Of the unit's picture: as Forge, it limits where the unit acts.
  void read_mask(const std::string& field, const json& value) {
    if (is_empty(value)) return;
    if (is_image_prompt())
      builder_.refuse(field, "not supported for image prompts: expected effective_region_mask");
    if (module_.starts_with("inpaint"))
      builder_.refuse(field, "not supported: inpaint modules see the request's mask");
    region_ = builder_.decode_image(field, builder_.text(field, value));
  }

  std::string preprocess() const {
    const auto known = modules().find(module_);
    if (known == modules().end())
      builder_.refuse(at("module"), concat("no preprocessor \"", printable(module_),
                                           "\"; /controlnet/module_list has those that there are"));
    const Module& module = known->second;
    std::string out = module.name;
    if (module.thresholds > 0) out += concat(":", low_ < 0 ? module.a : low_);
    if (module.thresholds > 1) out += concat(":", high_ < 0 ? module.b : high_);
    return out == "tile:1" ? "tile" : out;
  }

  void add_control() {
    if (images_.size() > 1) builder_.refuse(at("image"), "expected one picture");
    builder_.add_control(place_, {model_,
                                  std::move(images_.front()),
                                  std::move(region_),
                                  {{"control-strength", concat(weight_)},
                                   {"control-start", concat(start_)},
                                   {"control-end", concat(end_)},
                                   {"control-mode", mode_},
                                   {"control-resize", resize_},
                                   {"control-type", type_},
                                   {"control-preprocess", preprocess()}}});
  }

  void add_ip_adapter() {
    prompt_.model = model_;
    prompt_.images = std::move(images_);
    prompt_.options = {
        {"ip-weight", concat(weight_)}, {"ip-start", concat(start_)}, {"ip-end", concat(end_)}};
    const size_t seen = prompt_.images.empty() ? std::max<size_t>(prompt_.faces, 1) : prompt_.images.size();
    if (!region_.empty()) prompt_.masks.assign(seen, region_);
    builder_.add_ip_adapter(place_, std::move(prompt_));
  }

  RequestBuilder& builder_;
  const std::string place_;
  std::string model_, module_ = "none", region_;
  std::vector<std::string> images_;
  AskedIpAdapter prompt_;  // of an image prompt
  std::string mode_ = "balanced", resize_ = "crop", type_ = "none";
  double weight_ = 1, start_ = 0, end_ = 1, low_ = -1, high_ = -1;
};

}  // namespace

void add_control_unit(RequestBuilder& builder, const std::string& place, const json& unit) {
  Unit(builder, place).add(unit);
}

std::vector<std::string> control_module_names() {
  std::vector<std::string> names;
  for (const auto& [name, module] : modules()) names.push_back(name);
  names.insert(names.end(), std::begin(kImageModules), std::end(kImageModules));
  names.insert(names.end(), std::begin(kFaceModules), std::end(kFaceModules));
  return names;
}

}  // namespace rocm_sd::server
