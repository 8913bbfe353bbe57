#include "server/access.hpp"

#include <arpa/inet.h>

#include <algorithm>

#include "base/base64.hpp"
#include "base/error.hpp"

namespace rocm_sd::server {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return out;
}

// "[::1]:7860" -> "::1", "localhost:80" -> "localhost".
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) return lower(host.substr(1, host.find(']') - 1));
  const size_t colon = host.rfind(':');
  return lower(host.substr(0, colon == host.npos ? host.size() : colon));
}

bool is_address(const std::string& name) {
  unsigned char binary[16];
  return inet_pton(AF_INET, name.c_str(), binary) == 1 || inet_pton(AF_INET6, name.c_str(), binary) == 1;
}

bool host_allowed(std::string_view host, const AccessRules& rules) {
  if (!rules.api_key.empty()) return true;  // a rebound name does not know the key
  const std::string name = host_name(host);
  if (name == "localhost" || name.ends_with(".localhost") || is_address(name)) return true;
  return std::ranges::any_of(rules.allowed_hosts,
                             [&](const std::string& known) { return lower(known) == name; });
}

bool origin_listed(std::string_view origin, const AccessRules& rules) {
  return std::ranges::any_of(rules.cors_origins,
                             [&](const std::string& o) { return o == "*" || o == origin; });
}

bool origin_allowed(const HttpRequest& head, const AccessRules& rules) {
  const std::string_view origin = head.header("origin");
  if (origin.empty()) {
    const std::string_view site = head.header("sec-fetch-site");
    return site.empty() || site == "same-origin" || site == "none";
  }
  const size_t scheme = origin.find("://");
  // Behind a proxy that speaks TLS the scheme differs: the host decides.
  if (scheme != origin.npos && lower(origin.substr(scheme + 3)) == lower(head.header("host"))) return true;
  return origin_listed(origin, rules);
}

// The key that a request brings, or "".
std::string given_key(const HttpRequest& head) {
  const std::string_view direct = head.header("x-api-key");
  if (!direct.empty()) return std::string(direct);
  const std::string_view value = head.header("authorization");
  const size_t blank = value.find(' ');
  if (blank == value.npos) return "";
  const std::string scheme = lower(value.substr(0, blank));
  const std::string_view rest = value.substr(
      value.find_first_not_of(' ', blank) == value.npos ? value.size() : value.find_first_not_of(' ', blank));
  if (scheme == "bearer") return std::string(rest);
  if (scheme != "basic") return "";
  const auto pair = decode_base64(rest);
  if (!pair) return "";
  const size_t colon = pair->find(':');
  return colon == std::string::npos ? "" : pair->substr(colon + 1);
}

bool has_body(const HttpRequest& head) {
  const std::string_view length = head.header("content-length");
  return (!length.empty() && length.find_first_not_of('0') != length.npos) ||
         !head.header("transfer-encoding").empty();
}

}  // namespace

std::optional<ApiError> check_access(const HttpRequest& head, const AccessRules& rules) {
  if (!host_allowed(head.header("host"), rules))
    return ApiError{403, "host_not_allowed",
                    concat("Host \"", printable(head.header("host")),
                           "\" is neither an address nor localhost: start the server with --allow-host")};
  // A page of another origin may open WebSockets and read them: to upgrade counts as a change.
  const bool reads = (head.method == "GET" && head.header("upgrade").empty()) || head.method == "HEAD";
  if (!reads && !origin_allowed(head, rules))
    return ApiError{403, "origin_not_allowed",
                    concat("a page of ", printable(head.header("origin")),
                           " may not ask this server: start it with --cors-origin to allow it")};
  const bool open = head.path == "/health" || head.path == "/ready";
  if (!rules.api_key.empty() && !open && !equal_in_constant_time(given_key(head), rules.api_key))
    return ApiError{
        401, "invalid_api_key",
        "expected the server's key: Authorization: Bearer KEY, X-API-Key: KEY, or HTTP Basic with "
        "the key as password"};
  if (reads || !has_body(head)) return std::nullopt;
  const std::string encoding = lower(head.header("content-encoding"));
  if (!encoding.empty() && encoding != "identity")
    return ApiError{415, "unsupported_encoding",
                    "Content-Encoding: expected none, got " + printable(encoding)};
  const std::string type = lower(head.header("content-type"));
  // ComfyUI's clients say no type, or Python's default. What a browser sends says where it comes from.
  const bool is_untyped = type.empty() || type.starts_with("application/x-www-form-urlencoded");
  const bool of_browser = !head.header("origin").empty() || !head.header("sec-fetch-site").empty();
  if (is_comfy_path(head.path) && is_untyped && !of_browser) return std::nullopt;
  if (!type.starts_with("application/json") && !type.starts_with("multipart/form-data"))
    return ApiError{
        415, "unsupported_media_type",
        concat("Content-Type: expected application/json (or multipart/form-data for edits), got \"",
               printable(type), "\"")};
  return std::nullopt;
}

std::optional<HttpResponse> preflight(const HttpRequest& head, const AccessRules& rules) {
  if (!origin_listed(head.header("origin"), rules)) return std::nullopt;
  HttpResponse response{204, "", "", {}};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                      {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-API-Key"},
                      {"Access-Control-Max-Age", "600"}};
  return response;
}

void add_cors_headers(const HttpRequest& request, const AccessRules& rules, HttpResponse& response) {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !origin_listed(origin, rules)) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
  response.headers.emplace_back("Vary", "Origin");
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  // Every byte of b is looked at, whatever a has; the compiler may not see that the loop could end early.
  volatile unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < b.size(); ++i) {
    const char other = i < a.size() ? a[i] : '\0';
    difference = static_cast<unsigned char>(difference | (other ^ b[i]));
  }
  return difference == 0;
}

bool is_loopback(std::string_view address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

}  // namespace rocm_sd::server
