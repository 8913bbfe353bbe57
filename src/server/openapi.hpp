// The description of every route for programs, served at /openapi.json. A test compares it with the table of
// routes and with what the server answers.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/options.hpp"

namespace rocm_sd::server {

nlohmann::json openapi_document(const DrawLimits& limits);  // OpenAPI 3.0.3

}  // namespace rocm_sd::server
