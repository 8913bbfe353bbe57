// Who may ask what: the key, and what keeps a browser from being made an accomplice (DNS rebinding, requests
// forged by other sites).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.hpp"

namespace rocm_sd::server {

struct AccessRules {
  std::string api_key;                     // empty: none is asked for
  std::vector<std::string> allowed_hosts;  // names beside localhost that a Host header may have
  std::vector<std::string> cors_origins;   // other sites that may ask, "https://example.org"
};

// Looks at the head of a request alone: the body may not have come yet. Nothing where it may go on.
//   Host    an IP address, localhost or an allowed name: another one would be DNS rebinding. With a key any.
//   Origin  of anything but GET and HEAD: the server's own, or an allowed one.
//   Key     as Bearer token, X-API-Key, or the password of HTTP Basic; /health and /ready need none.
//   Type    a body is application/json or multipart/form-data: forms of other sites can send neither of the
//           first without asking, and the second only with an Origin.
std::optional<ApiError> check_access(const HttpRequest& head, const AccessRules& rules);

// The response to a preflight request, or nothing where the origin may not ask.
std::optional<HttpResponse> preflight(const HttpRequest& head, const AccessRules& rules);
// "Access-Control-Allow-Origin" for an allowed origin; else nothing.
void add_cors_headers(const HttpRequest& request, const AccessRules& rules, HttpResponse& response);

// Takes the same time wherever the texts differ; only their lengths show.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Whether an address that is listened on can be reached from this machine alone.
bool is_loopback(std::string_view address);

}  // namespace rocm_sd::server
