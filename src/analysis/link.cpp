#include "analysis/link.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/paths.hpp"

namespace rocm_sd {
namespace {

constexpr std::array kLinks = {"pcie3", "pcie4", "pcie5", "xgmi", "nvlink"};
constexpr std::array kKinds = {"published", "derived", "measured", "assumed"};

}  // namespace

Link read_link(const std::filesystem::path& path) {
  const nlohmann::json json = parse_json_file(path);
  const std::string what = printable(path.string());
  const auto text = [&](const nlohmann::json& of, const char* name) {
    require<FormatError>(of.is_object() && of.contains(name) && of[name].is_string() &&
                             !of[name].get_ref<const std::string&>().empty(),
                         what, ": \"", name, "\" must be a text");
    return of[name].get<std::string>();
  };
  Link out{.name = text(json, "name"), .about = text(json, "about")};
  const std::string paths = text(json, "paths");
  require<FormatError>(paths == "shared" || paths == "each", what,
                       R"(: "paths": expected "shared" or "each", got ")", printable(paths), "\"");
  out.each_pair = paths == "each";
  require<FormatError>(json.contains("figures") && json["figures"].is_object(), what,
                       ": \"figures\" must be an object");
  const auto figure = [&](const char* name) {
    require<FormatError>(json["figures"].contains(name), what, ": \"figures\" has no \"", name, "\"");
    const nlohmann::json& of = json["figures"][name];
    const std::string kind = text(of, "kind"), source = text(of, "source");
    require<FormatError>(std::ranges::find(kKinds, kind) != kKinds.end(), what, ": ", name,
                         ": \"kind\": expected published, derived, measured or assumed, got \"",
                         printable(kind), "\"");
    require<FormatError>(of.contains("value") && of["value"].is_number() && of["value"] > 0, what, ": ", name,
                         ": \"value\" must be a number above 0");
    out.figures.push_back({name, of["value"].get<double>(), kind, source});
    return out.figures.back().value;
  };
  out.gb_per_s = figure("gb_per_s");
  out.message_us = figure("message_us");
  out.next_message_us = figure("next_message_us");
  out.host_gb_per_s = figure("host_gb_per_s");
  out.host_copy_us = figure("host_copy_us");
  out.host_memory_gb_per_s = figure("host_memory_gb_per_s");
  out.wake_us = figure("wake_us");
  return out;
}

Link known_link(const std::string& name) {
  require<UsageError>(std::ranges::find(kLinks, name) != kLinks.end(),
                      "link: expected pcie3, pcie4, pcie5, xgmi or nvlink, got \"", printable(name), "\"");
  return read_link(share_path("links/" + name + ".json"));
}

}  // namespace rocm_sd
