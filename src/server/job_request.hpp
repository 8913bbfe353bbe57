// From what a client sends to a checked request. Every option of the engine's table (pipeline/options.hpp) is
// known here by its name, with underscores or dashes; files come as base64, never as paths.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rocm_sd/pipeline.hpp"
#include "server/catalog.hpp"
#include "server/job.hpp"
#include "server/options.hpp"

namespace rocm_sd::server {

// How an option of the table appears in JSON.
enum class OptionType {
  kText,
  kInteger,
  kNumber,
  kFlag,
  kImage,
  kNumberList,
  kLoraList,
  kControlList,
  kIpAdapterList,
  kTextList,
  kRefused
};

struct KnownOption {
  std::string name;   // "cfg_scale"
  std::string table;  // "cfg-scale"
  OptionType type = OptionType::kText;
  std::string group, help;
};
// Of requests: without those that are set when a model is loaded, and without those that name files.
std::vector<KnownOption> request_options();

using OptionTexts = std::vector<std::pair<std::string, std::string>>;  // names of the table, values

// A ControlNet as a client asks for it.
struct AskedControl {
  std::string model;    // a name of the catalog
  std::string image;    // of a file
  std::string mask;     // where it acts, of a file; empty: everywhere
  OptionTexts options;  // without the model, the image and the mask; absent ones have their defaults
};
// An IP-Adapter.
struct AskedIpAdapter {
  std::string model;
  std::vector<std::string> images, masks;  // of files; masks: none, or one for each image
  OptionTexts options;
  // A .safetensors file with what an encoder or a face model gave, in place of images or, for FaceID Plus,
  // beside them; empty: none. faces: how many embeddings it holds; 0: its shape does not say.
  std::string embeds = {};
  size_t faces = 0;
};

// Collects a request's options and checks each as it comes. Every failure is a RequestError that names the
// field: 400, or `status`.
class RequestBuilder {
 public:
  RequestBuilder(const Catalog& catalog, const DrawLimits& limits, int status)
      : catalog_(catalog), limits_(limits), status_(status) {}

  // An option from JSON under the client's name for it; null is left out.
  void set(const std::string& field, const KnownOption& option, const nlohmann::json& value);
  // The same by the table's name and as text.
  void set_text(const std::string& field, const std::string& table_name, const std::string& value);
  void set_image(const std::string& field, const std::string& table_name, std::string bytes);
  void set_base64(const std::string& field, const std::string& table_name, std::string_view text);
  // The bytes of a picture in base64 or a data URL.
  std::string decode_image(const std::string& field, std::string_view text) const;
  [[noreturn]] void refuse(const std::string& field, const std::string& message) const;

  int64_t integer(const std::string& field, const nlohmann::json& value, int64_t least, int64_t most) const;
  double number(const std::string& field, const nlohmann::json& value) const;
  bool flag(const std::string& field, const nlohmann::json& value) const;
  std::string text(const std::string& field, const nlohmann::json& value) const;

  JobRequest request;  // model, rounds, format and quality are set directly

  // The second pass's upscaler by its name: a latent mode, a filter, or a network of the catalog.
  void set_upscaler(const std::string& field, const std::string& name);

  void add_control(const std::string& field, AskedControl control);
  void add_ip_adapter(const std::string& field, AskedIpAdapter adapter);
  // adapter.embeds of a list with a list of numbers for each face, or of files in base64 (job_embeds.cpp).
  void read_embeds(const std::string& field, const nlohmann::json& value, AskedIpAdapter& adapter) const;

  // The whole: sizes and counts within the limits, sampler and schedule known, LoRAs of the prompt known.
  JobRequest finish();

 private:
  // Of lists (job_adapters.cpp).
  void add_loras(const std::string& field, const nlohmann::json& list);
  void add_controls(const std::string& field, const nlohmann::json& list);
  void add_ip_adapters(const std::string& field, const nlohmann::json& list);
  void add_texts(const std::string& field, const std::string& table_name, const nlohmann::json& list);
  std::vector<std::string> decode_images(const std::string& field, const nlohmann::json& list) const;
  ImageEmbeds embeds_of_file(const std::string& field, std::string_view base64) const;
  void add_face(const std::string& field, const nlohmann::json& row, ImageEmbeds& to) const;
  OptionTexts control_options(const std::string& place, const nlohmann::json& one) const;
  void set_all(const std::string& field, const char* prefix, OptionTexts defaults, const OptionTexts& given);
  void attach_masks();
  void finish_texts();
  void check_second_pass(int64_t width, int64_t height) const;
  void check_image(const std::string& field, std::string_view bytes) const;

  const Catalog& catalog_;
  const DrawLimits& limits_;
  const int status_;
  std::vector<std::string> control_masks_;          // of each ControlNet; empty: everywhere
  std::vector<std::vector<std::string>> ip_masks_;  // of each IP-Adapter
  std::vector<size_t> ip_images_;                   // how many it sees; 0: unknown
};

// A request of POST /v1/jobs.
JobRequest read_job(const nlohmann::json& body, const Catalog& catalog, const DrawLimits& limits);

// What enlarges pictures under this name: "lanczos", "bicubic", "nearest", or the path of a network of the
// catalog; nothing for other names.
std::optional<std::string> picture_upscaler(const Catalog& catalog, const std::string& name);
// Names of latent modes, as A1111 lists them.
std::vector<std::string> latent_upscaler_names();

// JSON of a body, within the limits of depth and size. Throws RequestError.
nlohmann::json read_json_body(const std::string& body);

}  // namespace rocm_sd::server
