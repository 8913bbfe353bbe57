#include "server/openapi_parts.hpp"

#include <nlohmann/json.hpp>

#include "server/http.hpp"

namespace rocm_sd::server {

using nlohmann::json;

struct OpenApiPaths::State {
  std::string error_schema, path, method;
  json document = json::object();

  json& route() { return document[path][method]; }
  json content(const std::string& schema, const std::string& type) const {
    if (type == "text/event-stream") return {{type, json::object()}};  // events have no schema in OpenAPI 3.0
    json body = {{"type", "string"}};
    if (!schema.empty()) body = {{"$ref", "#/components/schemas/" + schema}};
    return {{type, {{"schema", body}}}};
  }
};

OpenApiPaths::OpenApiPaths(std::string error_schema) : state_(std::make_unique<State>()) {
  state_->error_schema = std::move(error_schema);
}
OpenApiPaths::~OpenApiPaths() = default;

OpenApiPaths& OpenApiPaths::begin(const char* method, const std::string& path, const std::string& summary) {
  state_->path = path;
  state_->method = method;
  json parameters = json::array();
  for (size_t open = path.find('{'); open != path.npos; open = path.find('{', open + 1)) {
    const std::string name = path.substr(open + 1, path.find('}', open) - open - 1);
    parameters.push_back(
        {{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  }
  state_->route() = {{"summary", summary}, {"parameters", parameters}, {"responses", json::object()}};
  return fails({400, 401, 403});
}

OpenApiPaths& OpenApiPaths::get(const std::string& path, const std::string& summary) {
  return begin("get", path, summary);
}
OpenApiPaths& OpenApiPaths::post(const std::string& path, const std::string& summary) {
  return begin("post", path, summary).fails({413, 415});
}
OpenApiPaths& OpenApiPaths::remove(const std::string& path, const std::string& summary) {
  return begin("delete", path, summary);
}

OpenApiPaths& OpenApiPaths::takes(const std::string& schema, const std::string& type) {
  json& body = state_->route()["requestBody"];
  body["required"] = true;
  body["content"].update(state_->content(schema, type));
  return *this;
}

OpenApiPaths& OpenApiPaths::answers(int status, const std::string& schema, const std::string& type) {
  json& response = state_->route()["responses"][std::to_string(status)];
  response["description"] = reason_phrase(status);
  if (!type.empty()) response["content"] = state_->content(schema, type);
  return *this;
}

OpenApiPaths& OpenApiPaths::fails(std::initializer_list<int> statuses) {
  for (const int status : statuses) answers(status, state_->error_schema);
  return *this;
}

OpenApiPaths& OpenApiPaths::errors_as(const std::string& error_schema) {
  state_->error_schema = error_schema;
  return *this;
}

json OpenApiPaths::document() const { return state_->document; }

namespace openapi {

json ref(const char* name) { return {{"$ref", std::string("#/components/schemas/") + name}}; }
json nullable(json schema) {
  schema["nullable"] = true;
  return schema;
}
json text() { return {{"type", "string"}}; }
json integer() { return {{"type", "integer"}}; }
json number() { return {{"type", "number"}}; }
json boolean() { return {{"type", "boolean"}}; }
json list_of(json items) { return {{"type", "array"}, {"items", std::move(items)}}; }
json object(json properties) {
  json required = json::array();
  for (const auto& [name, schema] : properties.items()) required.push_back(name);
  return {{"type", "object"}, {"properties", std::move(properties)}, {"required", required}};
}

}  // namespace openapi

}  // namespace rocm_sd::server
