// The two faces of the links: JSON for programs, tables for people.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "doctor/links.hpp"

namespace rocm_sd::doctor {
namespace {

using nlohmann::ordered_json;

double gib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

std::string acs_text(const PciPlace& place) {
  bool readable = false, redirects = false;
  for (size_t i = 0; i + 1 < place.path.size(); ++i) {
    readable |= place.path[i].acs_readable;
    redirects |=
        (place.path[i].acs_control.value_or(0) & (kAcsRequestRedirect | kAcsCompletionRedirect)) != 0;
  }
  return redirects ? "redirects" : readable ? "off" : "not readable (root may)";
}

std::string window_text(const Card& card, const PciPlace& place) {
  const uint64_t window = card.vram_visible != 0 ? card.vram_visible : place.window_bytes;
  if (window == 0) return "window not told";
  return fmt::format("window {:.2f} GiB{}", gib(window),
                     card.vram ? fmt::format(" of {:.1f}", gib(card.vram)) : "");
}

std::string card_text(const Card& card, const PciPlace& place) {
  const PciLink now = place.slowest_now(), ever = place.slowest_ever();
  return fmt::format("{} {}: {} (now {}), NUMA {}, {}, IOMMU {}, ACS {}", card.address,
                     !card.arch.empty()       ? card.arch
                     : card.vendor == kNvidia ? "NVIDIA"
                                              : "AMD",
                     ever.text(), now.text(), place.numa < 0 ? "-" : std::to_string(place.numa),
                     window_text(card, place), place.iommu_type.empty() ? "-" : place.iommu_type,
                     acs_text(place));
}

const char* peer_text(const std::optional<bool>& peer) { return !peer ? "?" : *peer ? "yes" : "no"; }

// From each GPU to each: "yes", "no" or "?".
std::string matrix(const LinkExamination& e, const std::vector<CardPair>& pairs) {
  std::string text = fmt::format("{:<12}", "peer access");
  const size_t count = e.machine.cards.size();
  for (size_t i = 0; i < count; ++i) text += fmt::format("{:>5}", i);
  text += "\n";
  for (size_t i = 0; i < count; ++i) {
    text += fmt::format("{:>11} ", i);
    for (size_t j = 0; j < count; ++j) {
      const auto pair = std::find_if(pairs.begin(), pairs.end(), [&](const CardPair& p) {
        return p.from == std::min(i, j) && p.to == std::max(i, j);
      });
      text += fmt::format("{:>5}", pair == pairs.end() ? "-" : peer_text(pair->peer));
    }
    text += "\n";
  }
  return text;
}

ordered_json port_json(const PciPort& port) {
  ordered_json out = {{"address", port.address},
                      {"width", port.width},
                      {"width_max", port.width_max},
                      {"gigatransfers", port.speed},
                      {"gigatransfers_max", port.speed_max},
                      {"acs_readable", port.acs_readable}};
  out["acs_control"] = port.acs_control ? ordered_json(*port.acs_control) : ordered_json();
  return out;
}

}  // namespace

ordered_json links_json(const LinkExamination& e, const std::vector<Finding>& findings) {
  ordered_json out;
  out["cards"] = ordered_json::array();
  for (size_t i = 0; i < e.places.size(); ++i) {
    const PciPlace& place = e.places[i];
    ordered_json card = {{"address", place.address},
                         {"arch", e.machine.cards[i].arch},
                         {"root", place.root},
                         {"numa_node", place.numa},
                         {"window_bytes", place.window_bytes},
                         {"iommu_type", place.iommu_type},
                         {"link_now", place.slowest_now().text()},
                         {"link_max", place.slowest_ever().text()},
                         {"bytes_per_second_max", place.slowest_ever().bytes_per_second()}};
    card["path"] = ordered_json::array();
    for (const PciPort& port : place.path) card["path"].push_back(port_json(port));
    out["cards"].push_back(std::move(card));
  }
  out["pairs"] = ordered_json::array();
  for (const CardPair& pair : card_pairs(e)) {
    ordered_json one = {{"from", e.machine.cards[pair.from].address},
                        {"to", e.machine.cards[pair.to].address},
                        {"kind", pair.kind},
                        {"meets", meeting_text(pair)}};
    one["peer_access"] = pair.peer ? ordered_json(*pair.peer) : ordered_json();
    one["reason"] = pair.reason;
    out["pairs"].push_back(std::move(one));
  }
  out["iommu"] = {{"present", e.settings.iommu}, {"options", e.settings.iommu_options}};
  out["findings"] = findings_json(findings);
  return out;
}

std::string links_text(const LinkExamination& e, const std::vector<Finding>& findings) {
  std::string text;
  for (size_t i = 0; i < e.places.size(); ++i)
    text += fmt::format("GPU {:<8}{}\n", i, card_text(e.machine.cards[i], e.places[i]));
  if (e.places.empty()) text += "GPU         none on the PCI bus\n";
  text += fmt::format("IOMMU       {}{}\n", e.settings.iommu ? "present" : "none",
                      e.settings.iommu_options.empty() ? "" : ", booted with " + e.settings.iommu_options);
  const std::vector<CardPair> pairs = card_pairs(e);
  if (!pairs.empty()) text += matrix(e, pairs);
  for (const CardPair& pair : pairs)
    text += fmt::format("{:<12}{}, they meet {}; peer access {}: {}\n",
                        fmt::format("{} - {}", pair.from, pair.to), pair.kind, meeting_text(pair),
                        peer_text(pair.peer), pair.reason);
  return text + findings_text(findings);
}

}  // namespace rocm_sd::doctor
