// From what a client sends to a checked request. Every option of the engine's table (pipeline/options.hpp) is
// known here by its name, with underscores or dashes; files come as base64, never as paths.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

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

  // Adds a ControlNet by its name. image: of a file; options: of the table, without the model and the image.
  void add_control(const std::string& field, const std::string& name, std::string image,
                   const std::vector<std::pair<std::string, std::string>>& options);

  // The whole: sizes and counts within the limits, sampler and schedule known, LoRAs of the prompt known.
  JobRequest finish();

 private:
  void add_loras(const std::string& field, const nlohmann::json& list);
  void add_controls(const std::string& field, const nlohmann::json& list);
  void check_image(const std::string& field, std::string_view bytes) const;

  const Catalog& catalog_;
  const DrawLimits& limits_;
  const int status_;
};

// A request of POST /v1/jobs.
JobRequest read_job(const nlohmann::json& body, const Catalog& catalog, const DrawLimits& limits);

// JSON of a body, within the limits of depth and size. Throws RequestError.
nlohmann::json read_json_body(const std::string& body);

}  // namespace rocm_sd::server
