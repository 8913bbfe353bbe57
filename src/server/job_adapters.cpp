// What a request draws with beside its model: LoRAs, ControlNets, IP-Adapters, a prompt for each image.
// Options that come several times belong together by their order, so each of a list has all of its options.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "pipeline/image_sizes.hpp"
#include "pipeline/latent_resize.hpp"
#include "rocm_sd/image.hpp"
#include "server/http.hpp"
#include "server/job_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxLoras = 32, kMaxControls = 8, kMaxIpAdapters = 8, kMaxIpImages = 16;

std::string number_text(const json& value) {
  return value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
}

size_t count_of(const JobRequest& request, std::string_view option) {
  return static_cast<size_t>(
      std::ranges::count_if(request.options, [&](const auto& one) { return one.first == option; }));
}

// A mask that leaves nothing out, for those of a list that have none.
std::string white_image() {
  const std::vector<uint8_t> file = encode_image(Image{1, 1, {255, 255, 255}, {}}, ImageFormat::kPng, {});
  return {file.begin(), file.end()};
}

}  // namespace

std::optional<std::string> picture_upscaler(const Catalog& catalog, const std::string& name) {
  if (filter_named(name)) return name;
  for (const NamedFile& one : catalog.upscalers())
    if (one.name == name) return one.path.string();
  return std::nullopt;
}

std::vector<std::string> latent_upscaler_names() {
  return {"Latent",           "Latent (antialiased)",  "Latent (bicubic)", "Latent (bicubic antialiased)",
          "Latent (nearest)", "Latent (nearest-exact)"};
}

void RequestBuilder::set_upscaler(const std::string& field, const std::string& name) {
  std::optional<std::string> found = picture_upscaler(catalog_, name);
  if (!found && (name == "None" || latent_resize_named(name))) found = name;
  if (!found) {
    std::string known = "Lanczos, Bicubic, Nearest";
    for (const std::string& one : latent_upscaler_names()) known += ", " + one;
    for (const NamedFile& one : catalog_.upscalers()) known += ", " + printable(one.name);
    refuse(field, concat("no upscaler \"", printable(name), "\"; there are: ", known));
  }
  set_text(field, "hires-upscaler", *found);
}

// The defaults with what is given in their place, under `field` and the option's name without the prefix.
void RequestBuilder::set_all(const std::string& field, const char* prefix, OptionTexts defaults,
                             const OptionTexts& given) {
  for (auto& [option, value] : defaults) {
    for (const auto& [name, text] : given)
      if (name == option) value = text;
    set_text(concat(field, ".", std::string_view(option).substr(std::string_view(prefix).size())), option,
             value);
  }
}

void RequestBuilder::add_control(const std::string& field, AskedControl control) {
  if (count_of(request, "control") >= kMaxControls)
    refuse(field, concat("at most ", kMaxControls, " ControlNets"));
  check_image(field + ".image", control.image);
  if (!control.mask.empty()) check_image(field + ".mask", control.mask);
  const std::string path = catalog_.find_control(control.model, field + ".model").path.string();
  set_all(field, "control-",
          {{"control-strength", "1"},
           {"control-start", "0"},
           {"control-end", "1"},
           {"control-mode", "balanced"},
           {"control-resize", "crop"},
           {"control-preprocess", "none"},
           {"control-type", "none"}},
          control.options);
  request.options.emplace_back("control", path);
  request.files.push_back({"control-image", std::move(control.image)});
  control_masks_.push_back(std::move(control.mask));
}

void RequestBuilder::add_ip_adapter(const std::string& field, AskedIpAdapter adapter) {
  if (count_of(request, "ip-adapter") >= kMaxIpAdapters)
    refuse(field, concat("at most ", kMaxIpAdapters, " IP-Adapters"));
  if ((adapter.images.empty() && adapter.embeds.empty()) || adapter.images.size() > kMaxIpImages)
    refuse(field + ".images",
           concat("expected 1 to ", kMaxIpImages, " pictures, or embeds, got ", adapter.images.size()));
  const size_t seen = adapter.images.empty() ? adapter.faces : adapter.images.size();
  if (!adapter.masks.empty() && seen > 0 && adapter.masks.size() != seen)
    refuse(field + ".masks",
           concat("expected one for each of the ", seen,
                  adapter.images.empty() ? " embeddings, got " : " pictures, got ", adapter.masks.size()));
  const std::string path = catalog_.find_control(adapter.model, field + ".model").path.string();
  set_all(field, "ip-", {{"ip-weight", "1"}, {"ip-start", "0"}, {"ip-end", "1"}}, adapter.options);
  request.options.emplace_back("ip-adapter", path);
  ip_images_.push_back(seen);
  for (size_t i = 0; i < adapter.images.size(); ++i)
    request.files.push_back({"ip-image", std::move(adapter.images[i]), i > 0});
  // Behind pictures it is the last file of their option.
  if (!adapter.embeds.empty())
    request.files.push_back({adapter.images.empty() ? "ip-embeds" : "ip-image", std::move(adapter.embeds),
                             !adapter.images.empty()});
  ip_masks_.push_back(std::move(adapter.masks));
}

// Masks of all where one has a mask: the first that lacks one takes it.
void RequestBuilder::attach_masks() {
  const auto has = [](const auto& mask) { return !mask.empty(); };
  if (std::ranges::any_of(control_masks_, has))
    for (std::string& mask : control_masks_)
      request.files.push_back({"control-mask", mask.empty() ? white_image() : std::move(mask)});
  if (!std::ranges::any_of(ip_masks_, has)) return;
  for (size_t i = 0; i < ip_masks_.size(); ++i) {
    std::vector<std::string>& masks = ip_masks_[i];
    // Images with masks have a softmax each, those without one have one together.
    if (masks.empty() && ip_images_[i] > 1)
      refuse(concat("ip_adapters[", i, "].masks"),
             "expected one for each picture: another adapter has masks");
    if (masks.empty()) masks.push_back(white_image());
    for (size_t k = 0; k < masks.size(); ++k)
      request.files.push_back({"ip-mask", std::move(masks[k]), k > 0});
  }
}

// With prompts of their own the images of the batch are as many as the prompts.
void RequestBuilder::finish_texts() {
  const auto count = static_cast<int>(count_of(request, "image-prompt"));
  if (count == 0) return;
  if (count_of(request, "batch") > 0 && request.batch != count)
    refuse("batch", concat("expected ", count, ", as many as there are prompts, got ", request.batch));
  set_text("prompts", "batch", std::to_string(count));
}

OptionTexts RequestBuilder::control_options(const std::string& place, const json& one) const {
  OptionTexts options;
  for (const auto& [key, value] : one.items()) {
    const std::string name = concat(place, ".", key);
    if (key == "strength" || key == "start" || key == "end") {
      number(name, value);
      options.emplace_back("control-" + key, number_text(value));
    } else if (key == "mode" || key == "resize" || key == "preprocess" || key == "type") {
      options.emplace_back("control-" + key, text(name, value));
    } else if (key != "model" && key != "image" && key != "mask") {
      refuse(name, "unknown field");
    }
  }
  return options;
}

void RequestBuilder::add_controls(const std::string& field, const json& list) {
  if (!list.is_array()) refuse(field, "expected a list of {\"model\", \"image\", ...}");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = concat(field, "[", i, "]");
    const json& one = list[i];
    if (!one.is_object() || !one.contains("model") || !one.contains("image"))
      refuse(place, "expected {\"model\": ..., \"image\": ...}");
    AskedControl control{text(place + ".model", one["model"]),
                         decode_image(place + ".image", text(place + ".image", one["image"])),
                         {},
                         control_options(place, one)};
    if (one.contains("mask"))
      control.mask = decode_image(place + ".mask", text(place + ".mask", one["mask"]));
    add_control(place, std::move(control));
  }
}

std::vector<std::string> RequestBuilder::decode_images(const std::string& field, const json& list) const {
  if (!list.is_array() || list.size() > kMaxIpImages)
    refuse(field, concat("expected a list of at most ", kMaxIpImages, " pictures in base64"));
  std::vector<std::string> out;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = concat(field, "[", i, "]");
    out.push_back(decode_image(place, text(place, list[i])));
  }
  return out;
}

void RequestBuilder::add_ip_adapters(const std::string& field, const json& list) {
  if (!list.is_array()) refuse(field, "expected a list of {\"model\", \"images\" or \"embeds\", ...}");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = concat(field, "[", i, "]");
    const json& one = list[i];
    if (!one.is_object() || !one.contains("model") || !(one.contains("images") || one.contains("embeds")))
      refuse(place, "expected {\"model\": ..., \"images\": [...]} or \"embeds\" in their place");
    AskedIpAdapter adapter;
    for (const auto& [key, value] : one.items()) {
      const std::string name = concat(place, ".", key);
      if (key == "model") {
        adapter.model = text(name, value);
      } else if (key == "images") {
        adapter.images = decode_images(name, value);
      } else if (key == "masks") {
        adapter.masks = decode_images(name, value);
      } else if (key == "embeds") {
        read_embeds(name, value, adapter);
      } else if (key == "weight" || key == "start" || key == "end") {
        number(name, value);
        adapter.options.emplace_back("ip-" + key, number_text(value));
      } else {
        refuse(name, "unknown field");
      }
    }
    add_ip_adapter(place, std::move(adapter));
  }
}

void RequestBuilder::add_texts(const std::string& field, const std::string& table_name, const json& list) {
  if (!list.is_array() || list.empty() || list.size() > static_cast<size_t>(limits_.batch))
    refuse(field, concat("expected a list of 1 to ", limits_.batch, " texts"));
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = concat(field, "[", i, "]");
    set_text(place, table_name, text(place, list[i]));
  }
}

void RequestBuilder::add_loras(const std::string& field, const json& list) {
  if (!list.is_array() || list.size() > kMaxLoras)
    refuse(field, concat("expected a list of at most ", kMaxLoras,
                         " {\"name\", \"weight\", \"te_weight\", \"blocks\"}"));
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = concat(field, "[", i, "]");
    const json& one = list[i];
    if (!one.is_object() || !one.contains("name"))
      refuse(place, "expected {\"name\": ..., \"weight\": ..., \"te_weight\": ..., \"blocks\": ...}");
    for (const auto& [key, value] : one.items())
      if (key != "name" && key != "weight" && key != "te_weight" && key != "blocks")
        refuse(place + "." + key, "unknown field");
    const std::string name = text(place + ".name", one["name"]);
    catalog_.require_loras({name}, place + ".name");
    const double weight = one.contains("weight") ? number(place + ".weight", one["weight"]) : 1;
    const double te = one.contains("te_weight") ? number(place + ".te_weight", one["te_weight"]) : weight;
    const std::string blocks = one.contains("blocks") ? text(place + ".blocks", one["blocks"]) : "";
    if (one.contains("blocks") && blocks.find_first_not_of("0123456789.,-+eE") != blocks.npos)
      refuse(place + ".blocks", "expected numbers with commas between them");
    set_text(place, "lora",
             fmt::format("{}:{}:{}{}{}", name, weight, te, blocks.empty() ? "" : ":lbw=", blocks));
  }
}

}  // namespace rocm_sd::server
