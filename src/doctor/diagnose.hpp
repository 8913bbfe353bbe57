// What a machine can do with rocm-sd, what is missing, what each gap costs and how it is mended.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "doctor/libraries.hpp"
#include "doctor/machine.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd::doctor {

enum class Severity { kNote, kWarning, kProblem };  // to know; costs something; keeps a GPU from being used

struct Finding {
  Severity severity = Severity::kNote;
  std::string subject;  // "0000:03:00.0", "HSA_OVERRIDE_GFX_VERSION", "/dev/kfd"
  std::string what;     // one sentence
  std::string cost;     // what it costs the user
  std::string fix;      // a command or a step
};

// All that the checks look at; a test fills it by hand.
struct Examination {
  Machine machine;
  std::vector<DeviceListing> devices;  // as list_devices()
  std::vector<Library> libraries;
  std::vector<std::string> targets;  // that have a kernel archive
};
Examination examine(const std::filesystem::path& root = "/");

// Every finding, the gravest first; among equals in the order of the checks.
std::vector<Finding> diagnose(const Examination& examination);

// {"version", "machine", "cards", "devices", "libraries", "kernels", "caches", "environment", "findings"}
nlohmann::ordered_json report_json(const Examination& examination, const std::vector<Finding>& findings);
std::string report_text(const Examination& examination, const std::vector<Finding>& findings);
// The findings alone: a list of {"severity", "subject", "what", "cost", "fix"}, and three lines for each.
nlohmann::ordered_json findings_json(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);

}  // namespace rocm_sd::doctor
