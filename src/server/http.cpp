#include "server/http.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"

namespace rocm_sd::server {
namespace {

constexpr size_t kMaxQueryFields = 64;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool parse_query(std::string_view text, HttpRequest& request) {
  size_t fields = 0;
  while (!text.empty()) {
    const std::string_view field = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), field.size() + 1));
    if (field.empty()) continue;
    const size_t equals = std::min(field.find('='), field.size());
    const auto name = percent_decode(field.substr(0, equals), true);
    const auto value = percent_decode(field.substr(std::min(field.size(), equals + 1)), true);
    if (!name || !value || ++fields > kMaxQueryFields) return false;
    request.query[*name] = *value;
  }
  return true;
}

// No part may lead out of the tree of paths.
bool is_plain_path(std::string_view path) {
  if (path.empty() || path[0] != '/' || path.find('\\') != path.npos) return false;
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::string_view part = path.substr(0, path.find('/'));
    if (part == "." || part == "..") return false;
    path.remove_prefix(part.size());
  }
  return true;
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [known, value] : headers)
    if (known == name) return value;
  return {};
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_blank) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_blank) {
      c = ' ';
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return std::nullopt;
    out += c;
  }
  if (!is_valid_utf8(out)) return std::nullopt;
  return out;
}

bool parse_target(std::string_view target, HttpRequest& request) {
  target = target.substr(0, target.find('#'));
  const size_t question = std::min(target.find('?'), target.size());
  const auto path = percent_decode(target.substr(0, question));
  if (!path || !is_plain_path(*path)) return false;
  request.path = *path;
  return parse_query(target.substr(std::min(target.size(), question + 1)), request);
}

namespace {

std::string short_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

constexpr size_t kLongText = 4096;

bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

// At least what the long texts take, so that they are written once.
size_t long_texts(const nlohmann::json& value) {
  if (value.is_string()) {
    const size_t size = value.get_ref<const std::string&>().size();
    return size < kLongText ? 0 : size + 64;
  }
  size_t sum = 0;
  if (value.is_structured())
    for (const auto& item : value) sum += long_texts(item);
  return sum;
}

void append_json(std::string& out, const nlohmann::json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() < kLongText || !std::ranges::all_of(text, is_plain)) {
      out += short_text(value);
    } else {
      out += '"';
      out += text;
      out += '"';
    }
  } else if (value.is_structured() && !value.empty()) {
    char before = value.is_object() ? '{' : '[';
    for (const auto& [key, item] : value.items()) {
      out += before;
      before = ',';
      if (value.is_object()) out += short_text(key) + ':';
      append_json(out, item);
    }
    out += value.is_object() ? '}' : ']';
  } else {
    out += short_text(value);
  }
}

}  // namespace

std::string json_text(const nlohmann::json& body) {
  std::string out;
  if (const size_t size = long_texts(body)) out.reserve(size + kLongText);
  append_json(out, body);
  return out;
}

std::string json_text_with_files(std::string_view name, const std::vector<std::string_view>& files,
                                 const nlohmann::json& body) {
  const std::string rest = json_text(body);
  size_t size = name.size() + rest.size() + 8;
  for (const std::string_view file : files) size += file.size() / 3 * 4 + 8;
  std::string out;
  out.reserve(size);
  out.append("{\"").append(name).append("\":[");
  for (const std::string_view file : files) {
    if (out.back() == '"') out += ',';
    out += '"';
    append_base64(out, file);
    out += '"';
  }
  out += body.empty() ? "]" : "],";
  out += std::string_view(rest).substr(1);
  return out;
}

HttpResponse json_text_response(std::string text, int status) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(text);
  return response;
}

HttpResponse json_response(const nlohmann::json& body, int status) {
  return json_text_response(json_text(body), status);
}

HttpResponse error_response(std::string_view path, const ApiError& error) {
  using nlohmann::json;
  if (path.starts_with("/sdapi/")) {
    // The web UI validates by pydantic: `detail` of a 422 is a list of places, else a text.
    json detail = error.message;
    if (error.status == 422)
      detail = json::array({{{"loc", {"body", error.param}}, {"msg", error.message}, {"type", error.type}}});
    return json_response({{"error", error.type}, {"detail", detail}, {"body", ""}, {"errors", error.message}},
                         error.status);
  }
  if (is_comfy_path(path)) {
    json extra = json::object();
    if (!error.param.empty()) extra["input_name"] = error.param;
    return json_response(
        {{"error",
          {{"type", error.type}, {"message", error.message}, {"details", ""}, {"extra_info", extra}}},
         {"node_errors", json::object()}},
        error.status);
  }
  json param = nullptr;
  if (!error.param.empty()) param = error.param;
  const bool of_client = error.status < 500 && error.status != 429;
  json body = {{"message", error.message},
               {"type", of_client ? "invalid_request_error" : error.type},
               {"param", param},
               {"code", error.type}};
  if (error.needed > 0) body.update({{"needed_bytes", error.needed}, {"available_bytes", error.available}});
  return json_response({{"error", body}}, error.status);
}

bool is_comfy_path(std::string_view path) {
  if (path.starts_with("/api/")) return true;
  static constexpr std::string_view kFirst[] = {"prompt",       "queue", "history", "view",
                                                "object_info",  "ws",    "upload",  "interrupt",
                                                "system_stats", "free",  "models",  "embeddings"};
  const std::string_view part = path.substr(std::min<size_t>(1, path.size()));
  return std::ranges::find(kFirst, part.substr(0, part.find('/'))) != std::end(kFirst);
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 413: return "Payload Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 422: return "Unprocessable Entity";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return status < 500 ? "Error" : "Internal Server Error";
  }
}

}  // namespace rocm_sd::server
