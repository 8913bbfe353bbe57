// Requests of AUTOMATIC1111's web UI (POST /sdapi/v1/txt2img and img2img) as jobs.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/job_request.hpp"

namespace rocm_sd::server {

struct WebUiRequest {
  JobRequest job;
  bool send_images = true;
};

// Every field of the web UI is known: it is used, or has no effect at the value that it has, or is refused by
// its name (RequestError, 422).
WebUiRequest read_web_ui_request(const nlohmann::json& body, bool img2img, const Catalog& catalog,
                                 const DrawLimits& limits);

// A request of extra-single-image (or, with `several`, of extra-batch-images) by the same rules, and its
// schema (api_extras.cpp).
JobRequest read_extras(const nlohmann::json& body, bool several, const Catalog& catalog,
                       const DrawLimits& limits);
nlohmann::json extras_schema(bool several);

// The same as a JSON schema, for /openapi.json.
nlohmann::json web_ui_schema(bool img2img);

}  // namespace rocm_sd::server
