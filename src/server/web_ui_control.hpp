// Units of the ControlNet extension (alwayson_scripts), as the web UI's clients and Forge's send them:
// ControlNets, T2I-Adapters and IP-Adapters.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "server/job_request.hpp"

namespace rocm_sd::server {

// Adds what a unit asks for; one that is switched off adds nothing. place: of the unit, for messages. Throws
// RequestError for fields and values that would have an effect which there is not.
void add_control_unit(RequestBuilder& builder, const std::string& place, const nlohmann::json& unit);

// The modules that a unit may name.
std::vector<std::string> control_module_names();

}  // namespace rocm_sd::server
