// The two faces of a diagnosis: JSON for programs, text for people.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "doctor/diagnose.hpp"

namespace rocm_sd::doctor {
namespace {

using nlohmann::ordered_json;

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kNote: return "note";
    case Severity::kWarning: return "warning";
    case Severity::kProblem: return "problem";
  }
  return "";
}

double gib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

const char* link_name(int type) { return type == 11 ? "xGMI" : type == 2 ? "PCIe" : "link"; }

std::string card_text(const Card& card) {
  std::string text = fmt::format(
      "{} {} {:04x}{}, driver {}", card.address, card.vendor == kAmd ? "AMD" : "NVIDIA", card.device,
      card.arch.empty() ? "" : " (" + card.arch + ")", card.driver.empty() ? "none" : card.driver);
  if (card.vram != 0)
    text += fmt::format(", {:.1f} of {:.1f} GiB VRAM used", gib(card.vram_used), gib(card.vram));
  if (card.gtt != 0) text += fmt::format(", {:.1f} GiB GTT", gib(card.gtt));
  if (card.link_width != 0) text += fmt::format(", x{} {}", card.link_width, card.link_speed);
  return text;
}

}  // namespace

ordered_json findings_json(const std::vector<Finding>& findings) {
  ordered_json out = ordered_json::array();
  for (const Finding& f : findings)
    out.push_back({{"severity", severity_name(f.severity)},
                   {"subject", f.subject},
                   {"what", f.what},
                   {"cost", f.cost},
                   {"fix", f.fix}});
  return out;
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings)
    text += fmt::format("{}: {}: {}\n  cost: {}\n  fix:  {}\n", severity_name(f.severity), f.subject, f.what,
                        f.cost, f.fix);
  return text;
}

ordered_json report_json(const Examination& e, const std::vector<Finding>& findings) {
  const Machine& m = e.machine;
  ordered_json report;
  report["version"] = ROCM_SD_VERSION;
  report["machine"] = {{"kernel", m.kernel},
                       {"wsl", m.wsl},
                       {"container", m.container},
                       {"memory_bytes", m.memory},
                       {"memory_available_bytes", m.memory_available},
                       {"memory_limit_bytes", m.memory_limit},
                       {"swap_bytes", m.swap},
                       {"rocm", m.rocm},
                       {"amdgpu", m.amdgpu},
                       {"nvidia", m.nvidia}};
  report["cards"] = ordered_json::array();
  for (const Card& c : m.cards)
    report["cards"].push_back({{"address", c.address},
                               {"vendor", c.vendor},
                               {"device", c.device},
                               {"driver", c.driver},
                               {"arch", c.arch},
                               {"vram_bytes", c.vram},
                               {"vram_used_bytes", c.vram_used},
                               {"vram_visible_bytes", c.vram_visible},
                               {"gtt_bytes", c.gtt},
                               {"link_width", c.link_width},
                               {"link_width_max", c.link_width_max},
                               {"link_speed", c.link_speed},
                               {"link_speed_max", c.link_speed_max},
                               {"kfd_node", c.node}});
  report["links"] = ordered_json::array();
  for (const Link& l : m.links)
    report["links"].push_back({{"from", l.from},
                               {"to", l.to},
                               {"kind", link_name(l.type)},
                               {"max_megabytes_per_second", l.max_megabytes}});
  report["files"] = ordered_json::array();
  for (const DeviceFile& f : m.files)
    report["files"].push_back({{"path", f.path}, {"accessible", f.accessible}, {"group", f.group}});
  report["devices"] = ordered_json::array();
  for (const DeviceListing& d : e.devices)
    report["devices"].push_back({{"name", d.name}, {"usable", d.usable}, {"detail", d.detail}});
  report["libraries"] = ordered_json::array();
  for (const Library& l : e.libraries)
    report["libraries"].push_back(
        {{"product", l.product}, {"file", l.file}, {"usable", l.usable()}, {"problem", l.problem}});
  report["kernels"] = e.targets;
  report["caches"] = m.caches;
  report["environment"] = m.environment;
  report["findings"] = findings_json(findings);
  return report;
}

std::string report_text(const Examination& e, const std::vector<Finding>& findings) {
  const Machine& m = e.machine;
  std::string text;
  const auto line = [&](std::string_view title, const std::string& content) {
    text += fmt::format("{:<12}{}\n", title, content);
  };
  line("rocm-sd", ROCM_SD_VERSION);
  line("system", fmt::format("Linux {}{}{}, {:.1f} GiB memory ({:.1f} free), {:.1f} GiB swap", m.kernel,
                             m.wsl ? ", WSL" : "", m.container ? ", container" : "", gib(m.memory),
                             gib(m.memory_available), gib(m.swap)));
  line("drivers", fmt::format("ROCm {}, amdgpu {}, NVIDIA {}", m.rocm.empty() ? "-" : m.rocm,
                              !m.amdgpu.empty() ? m.amdgpu
                              : m.amdgpu_loaded ? "loaded"
                                                : "-",
                              m.nvidia.empty() ? "-" : m.nvidia));
  for (const Card& card : m.cards) line("GPU", card_text(card));
  for (const Link& l : m.links)
    line("link", fmt::format("node {} -> node {}: {}{}", l.from, l.to, link_name(l.type),
                             l.max_megabytes == 0 ? "" : fmt::format(", up to {} MB/s", l.max_megabytes)));
  for (const DeviceFile& f : m.files)
    line("file", fmt::format("{} ({}): {}", f.path, f.group, f.accessible ? "accessible" : "not accessible"));
  for (const DeviceListing& d : e.devices)
    line("device", fmt::format("{:<8} {}{}", d.name, d.usable ? "" : "cannot be used: ", d.detail));
  for (const Library& l : e.libraries)
    line("library", fmt::format("{:<12} {}", l.product, l.usable() ? l.file : "not usable: " + l.problem));
  std::string targets;
  for (const std::string& target : e.targets) targets += (targets.empty() ? "" : ", ") + target;
  line("kernels", targets.empty() ? "none built" : targets);
  for (const auto& [folder, bytes] : m.caches)
    line("cache", fmt::format("{}: {:.1f} MB", folder, static_cast<double>(bytes) / 1e6));
  for (const auto& [name, value] : m.environment) line("environment", name + "=" + printable(value));
  text += findings.empty() ? "\nNothing is missing.\n" : "\n";
  return text + findings_text(findings);
}

}  // namespace rocm_sd::doctor
