// Writes the paths of an OpenAPI document, one line a route.
#pragma once

#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rocm_sd::server {

class OpenApiPaths {
 public:
  // error_schema: of what fails() lists, and of what every route may answer (400, 401, 403, 413, 415, ...).
  explicit OpenApiPaths(std::string error_schema);
  ~OpenApiPaths();

  // Each begins a route, which the functions below describe.
  OpenApiPaths& get(const std::string& path, const std::string& summary);
  OpenApiPaths& post(const std::string& path, const std::string& summary);
  OpenApiPaths& remove(const std::string& path, const std::string& summary);

  OpenApiPaths& takes(const std::string& schema, const std::string& type = "application/json");
  OpenApiPaths& answers(int status, const std::string& schema, const std::string& type = "application/json");
  OpenApiPaths& fails(std::initializer_list<int> statuses);
  OpenApiPaths& errors_as(const std::string& error_schema);  // of the routes that follow

  nlohmann::json document() const;

 private:
  OpenApiPaths& begin(const char* method, const std::string& path, const std::string& summary);

  struct State;
  std::unique_ptr<State> state_;
};

// ComfyUI's (openapi_comfy.cpp).
void add_comfy_paths(OpenApiPaths& paths);
void add_comfy_schemas(nlohmann::json& all);

// Schemas of values.
namespace openapi {

nlohmann::json ref(const char* name);  // of the document
nlohmann::json nullable(nlohmann::json schema);
nlohmann::json text();
nlohmann::json integer();
nlohmann::json number();
nlohmann::json boolean();
nlohmann::json list_of(nlohmann::json items);
nlohmann::json object(nlohmann::json properties);  // all of them required

}  // namespace openapi

}  // namespace rocm_sd::server
