#include "server/job_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"
#include "pipeline/hires.hpp"
#include "pipeline/options.hpp"
#include "schedulers/sampler.hpp"
#include "server/http.hpp"
#include "text/prompt.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxImageBytes = 50'000'000;

OptionType type_of(const OptionRow& row) {
  const std::string_view value = row.value;
  if (std::string_view(row.name) == "lora") return OptionType::kLoraList;
  if (std::string_view(row.name) == "control") return OptionType::kControlList;
  if (std::string_view(row.name) == "ip-adapter") return OptionType::kIpAdapterList;
  if (std::string_view(row.name) == "image-prompt") return OptionType::kTextList;
  if (value.empty()) return OptionType::kFlag;
  if (value == "N" || value == "PX") return OptionType::kInteger;
  if (value == "X") return OptionType::kNumber;
  if (value == "LIST") return OptionType::kNumberList;
  // Latents are files of another program's making: not over a network.
  if (value == "FILE")
    return std::string_view(row.name) == "init-latents" ? OptionType::kRefused : OptionType::kImage;
  // What names files of this machine stays with who started the server.
  if (value.find("FILE") != value.npos || value.find("PATH") != value.npos ||
      value.find("FOLDER") != value.npos)
    return OptionType::kRefused;
  return OptionType::kText;
}

// Results here are finished pictures, a canvas that grows has no size before its image is read, and the
// limits of a request are those of one drawing, not of one for each part or loop.
bool is_of_programs(std::string_view table_name) {
  return table_name == "keep-latents" || table_name == "outpaint" || table_name.starts_with("preview") ||
         table_name.starts_with("detail-") || table_name.starts_with("loopback");
}

const OptionRow* find_row(std::string_view table_name) {
  for (const OptionRow& row : option_rows())
    if (table_name == row.name) return &row;
  return nullptr;
}

std::string_view json_type(const json& value) {
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a text";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return "null";
}

bool looks_like_image(std::string_view bytes) {
  return bytes.starts_with("\x89PNG") || bytes.starts_with("\xff\xd8\xff") ||
         (bytes.starts_with("RIFF") && bytes.substr(8).starts_with("WEBP"));
}

std::string number_text(const json& value) {
  return value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
}

}  // namespace

std::vector<KnownOption> request_options() {
  std::vector<KnownOption> out;
  for (const OptionRow& row : option_rows()) {
    // What loading takes is refused by a request's setter, whatever its value is.
    if (std::string_view(row.group) == "Model" || type_of(row) == OptionType::kRefused) continue;
    const bool of_lists =
        std::string_view(row.group) == "IP-Adapter" || std::string_view(row.group) == "ControlNet";
    if (of_lists && type_of(row) != OptionType::kControlList && type_of(row) != OptionType::kIpAdapterList)
      continue;  // each of a list (job_adapters.cpp)
    if (is_of_programs(row.name)) continue;
    std::string name = row.name;
    std::ranges::replace(name, '-', '_');
    if (type_of(row) == OptionType::kLoraList) name = "loras";
    if (type_of(row) == OptionType::kControlList) name = "controls";
    if (type_of(row) == OptionType::kIpAdapterList) name = "ip_adapters";
    if (type_of(row) == OptionType::kTextList) name = "prompts";
    out.push_back({std::move(name), row.name, type_of(row), row.group, row.help});
  }
  return out;
}

void RequestBuilder::refuse(const std::string& field, const std::string& message) const {
  throw RequestError({status_, "invalid_value", concat(printable(field), ": ", message), field});
}

int64_t RequestBuilder::integer(const std::string& field, const json& value, int64_t least,
                                int64_t most) const {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most)
    refuse(field, concat("expected a whole number from ", least, " to ", most, ", got ",
                         value.is_number() ? printable(value.dump()) : std::string(json_type(value))));
  return value.get<int64_t>();
}

double RequestBuilder::number(const std::string& field, const json& value) const {
  if (!value.is_number()) refuse(field, concat("expected a number, got ", json_type(value)));
  return value.get<double>();
}

bool RequestBuilder::flag(const std::string& field, const json& value) const {
  if (!value.is_boolean()) refuse(field, concat("expected true or false, got ", json_type(value)));
  return value.get<bool>();
}

std::string RequestBuilder::text(const std::string& field, const json& value) const {
  if (!value.is_string()) refuse(field, concat("expected a text, got ", json_type(value)));
  return value.get<std::string>();
}

void RequestBuilder::set_text(const std::string& field, const std::string& table_name,
                              const std::string& value) {
  const OptionRow* row = find_row(table_name);
  if (row == nullptr) refuse(field, "unknown option");
  GenerateRequest scratch;
  OptionTargets targets{nullptr, &scratch};
  try {
    row->set(targets, value);
    const bool of_second = table_name.starts_with("hires-");
    const std::string_view what = std::string_view(table_name).substr(of_second ? 6 : 0);
    if (of_second && value.empty()) {
      // As the first pass.
    } else if (what == "sampler" && value != "auto") {
      plan_sampling(NoiseSchedule(), {.sampler = value});
    } else if (what == "schedule" && value != "auto" && value != "automatic") {
      parse_schedule(value);
    }
  } catch (const Error& e) {
    refuse(field, e.what());
  }
  if (!row->repeats)
    std::erase_if(request.options, [&](const auto& option) { return option.first == table_name; });
  request.options.emplace_back(table_name, value);
  if (table_name == "batch") request.batch = scratch.batch;
  if (table_name == "steps") request.steps = scratch.steps;
}

void RequestBuilder::check_image(const std::string& field, std::string_view bytes) const {
  if (bytes.size() > kMaxImageBytes)
    refuse(field, concat(bytes.size(), " bytes, at most ", kMaxImageBytes, " are accepted for a picture"));
  if (!looks_like_image(bytes)) refuse(field, "expected a PNG, JPEG or WebP picture");
}

void RequestBuilder::set_image(const std::string& field, const std::string& table_name, std::string bytes) {
  check_image(field, bytes);
  std::erase_if(request.files, [&](const Attachment& file) { return file.option == table_name; });
  request.files.push_back({table_name, std::move(bytes)});
}

std::string RequestBuilder::decode_image(const std::string& field, std::string_view text) const {
  if (text.starts_with("http://") || text.starts_with("https://"))
    refuse(field, "expected base64 or a data URL: this server fetches nothing from other addresses");
  auto bytes = decode_data_url(text);
  if (!bytes) refuse(field, "expected a picture in base64");
  check_image(field, *bytes);
  return std::move(*bytes);
}

void RequestBuilder::set_base64(const std::string& field, const std::string& table_name,
                                std::string_view text) {
  set_image(field, table_name, decode_image(field, text));
}

void RequestBuilder::set(const std::string& field, const KnownOption& option, const json& value) {
  if (value.is_null()) return;
  switch (option.type) {
    case OptionType::kText: set_text(field, option.table, text(field, value)); return;
    case OptionType::kInteger:
      integer(field, value, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
      set_text(field, option.table, number_text(value));
      return;
    case OptionType::kNumber:
      number(field, value);
      set_text(field, option.table, number_text(value));
      return;
    case OptionType::kFlag: set_text(field, option.table, flag(field, value) ? "true" : "false"); return;
    case OptionType::kImage: set_base64(field, option.table, text(field, value)); return;
    case OptionType::kLoraList: add_loras(field, value); return;
    case OptionType::kControlList: add_controls(field, value); return;
    case OptionType::kIpAdapterList: add_ip_adapters(field, value); return;
    case OptionType::kTextList: add_texts(field, option.table, value); return;
    case OptionType::kNumberList: {
      if (!value.is_array() || value.empty()) refuse(field, "expected a list of numbers");
      std::string list;
      for (const json& one : value) {
        number(field, one);
        list += (list.empty() ? "" : ",") + number_text(one);
      }
      set_text(field, option.table, list);
      return;
    }
    case OptionType::kRefused: refuse(field, "not over the network");
  }
}

// Of the second pass, where there is one: its size and steps are within the same limits as the first's.
void RequestBuilder::check_second_pass(int64_t width, int64_t height) const {
  GenerateRequest asked;
  OptionTargets targets{nullptr, &asked};
  for (const auto& [name, value] : request.options)
    if (name.starts_with("hires-")) find_row(name)->set(targets, value);
  if (!asked.hires.active()) return;
  // The size would be the picture's, which is not read here.
  if (std::ranges::any_of(request.files, [](const Attachment& file) { return file.option == "init-image"; }))
    refuse("hires_scale", "not with a picture to start from; expected one of them");
  constexpr int64_t kLargestNative = 1024;  // a side that nobody asked for
  const PictureSize first{static_cast<int>(width ? width : kLargestNative),
                          static_cast<int>(height ? height : kLargestNative)};
  try {
    const PictureSize size = hires_sizes(asked.hires, first, 8).enlarged;
    if (int64_t{size.width} * size.height > limits_.pixels)
      refuse("hires_scale", concat("the second pass: expected at most ", limits_.pixels, " pixels, got ",
                                   int64_t{size.width} * size.height));
  } catch (const UsageError& e) {
    refuse("hires_scale", e.what());
  }
  if (asked.hires.steps > limits_.steps)
    refuse("hires_steps",
           concat("expected at most ", limits_.steps, " on this server, got ", asked.hires.steps));
}

JobRequest RequestBuilder::finish() {
  request.model = catalog_.find(request.model).name;
  attach_masks();
  finish_texts();
  int64_t width = 0, height = 0;
  for (const auto& [name, value] : request.options) {
    if (name == "width") width = parse_integer(value, 0, 1 << 16);
    if (name == "height") height = parse_integer(value, 0, 1 << 16);
    if (name.ends_with("prompt") || name.find("prompt-") != name.npos) {
      try {
        std::vector<std::string> names;
        const PromptTags tags = extract_lora_tags(value);
        for (const LoraTag& tag : tags.loras) names.push_back(tag.name);
        parse_prompt_attention(tags.text);
        catalog_.require_loras(names, name);
      } catch (const UsageError& e) {
        refuse(name, e.what());
      }
    }
  }
  for (const auto& [name, side] : {std::pair{"width", width}, std::pair{"height", height}})
    if (side % 8 != 0) refuse(name, concat("expected a multiple of 8, got ", side));
  if (width * height > limits_.pixels)
    refuse("width",
           concat("width * height: expected at most ", limits_.pixels, " pixels, got ", width * height));
  check_second_pass(width, height);
  if (request.batch > limits_.batch)
    refuse("batch", concat("expected at most ", limits_.batch, " on this server, got ", request.batch));
  const bool says_steps =
      std::ranges::any_of(request.options, [](const auto& option) { return option.first == "steps"; });
  if (!says_steps) request.steps = static_cast<int>(request.steps * request.steps_factor);
  if (says_steps) request.steps_factor = 1;
  if (request.steps > limits_.steps)
    refuse("steps", concat("expected at most ", limits_.steps, " on this server, got ", request.steps));
  if (request.rounds < 1 || request.images() > static_cast<size_t>(limits_.images))
    refuse("count",
           concat("expected at most ", limits_.images, " images of one request, got ", request.images()));
  return std::move(request);
}

JobRequest read_job(const json& body, const Catalog& catalog, const DrawLimits& limits) {
  RequestBuilder builder(catalog, limits, 400);
  if (!body.is_object()) builder.refuse("body", concat("expected an object, got ", json_type(body)));
  const std::vector<KnownOption> options = request_options();
  for (const auto& [key, value] : body.items()) {
    std::string name = key;
    std::ranges::replace(name, '-', '_');
    const auto option = std::ranges::find(options, name, &KnownOption::name);
    if (name == "model") {
      builder.request.model = builder.text(key, value);
    } else if (name == "count") {
      builder.request.rounds = static_cast<int>(builder.integer(key, value, 1, limits.images));
    } else if (name == "hires_upscaler") {
      builder.set_upscaler(key, builder.text(key, value));
    } else if (name == "format") {
      builder.request.format = builder.text(key, value);
      if (builder.request.format != "png" && builder.request.format != "jpeg" &&
          builder.request.format != "webp")
        builder.refuse(key, "expected png, jpeg or webp");
    } else if (name == "quality") {
      builder.request.quality = static_cast<int>(builder.integer(key, value, 1, 100));
    } else if (name == "invert_mask") {
      builder.request.inverts_mask = builder.flag(key, value);
    } else if (name == "metadata") {
      builder.request.metadata = builder.flag(key, value);
    } else if (option != options.end()) {
      builder.set(key, *option, value);
    } else {
      std::vector<std::string> names = {"model",   "count",       "hires_upscaler", "format",
                                        "quality", "invert_mask", "metadata"};
      for (const KnownOption& known : options) names.push_back(known.name);
      builder.refuse(key, concat("unknown field; did you mean \"", nearest_name(name, names), "\"?"));
    }
  }
  if (!body.contains("prompt") && !body.contains("prompts")) builder.refuse("prompt", "is required");
  return builder.finish();
}

json read_json_body(const std::string& body) {
  constexpr int kMaxDepth = 16;
  try {
    return parse_json(body, {.max_bytes = 64u << 20, .max_depth = kMaxDepth, .max_values = 100'000}, "body");
  } catch (const Error& e) {
    throw RequestError({400, "invalid_json", e.what(), ""});
  }
}

}  // namespace rocm_sd::server
