#include "emulator/machine.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/paths.hpp"
#include "base/text.hpp"

namespace rocm_sd::emu {

namespace {

struct Field {
  const char* name;
  double Machine::* member;
  double least, most;
};
constexpr std::array kFields = {
    Field{"gigahertz", &Machine::gigahertz, 0.1, 10},
    Field{"compute_units", &Machine::compute_units, 1, 4096},
    Field{"simds", &Machine::simds, 1, 8},
    Field{"waves_per_simd", &Machine::waves_per_simd, 1, 64},
    Field{"lds_kib", &Machine::lds_kib, 1, 1024},
    Field{"limited_gigahertz", &Machine::limited_gigahertz, 0, 10},
    Field{"limited_share", &Machine::limited_share, 0, 1},
    Field{"issue", &Machine::issue, 1, 16},
    Field{"vector_latency", &Machine::vector_latency, 1, 100},
    Field{"trans_latency", &Machine::trans_latency, 1, 200},
    Field{"scalar_latency", &Machine::scalar_latency, 1, 100},
    Field{"matrix_latency", &Machine::matrix_latency, 0, 200},
    Field{"branch_latency", &Machine::branch_latency, 0, 200},
    Field{"scalar_load", &Machine::scalar_load, 1, 1000},
    Field{"lds_latency", &Machine::lds_latency, 1, 1000},
    Field{"l0_latency", &Machine::l0_latency, 1, 2000},
    Field{"barrier", &Machine::barrier, 0, 1000},
    Field{"group_start", &Machine::group_start, 0, 100000},
    Field{"queue", &Machine::queue, 1, 100000},
    Field{"l0_kib", &Machine::l0_kib, 1, 1024},
    Field{"lds_bytes", &Machine::lds_bytes, 1, 4096},
    Field{"l0_bytes", &Machine::l0_bytes, 1, 4096},
    Field{"request_bytes", &Machine::request_bytes, 1, 4096},
    Field{"l2_bytes", &Machine::l2_bytes, 1, 1e6},
    Field{"l2_mb", &Machine::l2_mb, 0.1, 4096},
    Field{"l2s", &Machine::l2s, 1, 64},
    Field{"l2_latency", &Machine::l2_latency, 1, 10000},
    Field{"last_level_mb", &Machine::last_level_mb, 0, 4096},
    Field{"last_level_gb", &Machine::last_level_gb, 0, 1e6},
    Field{"last_level_latency", &Machine::last_level_latency, 0, 10000},
    Field{"memory_gb", &Machine::memory_gb, 1, 1e6},
    Field{"memory_latency", &Machine::memory_latency, 1, 10000},
    Field{"launch_us", &Machine::launch_us, 0, 1000},
};

std::string text_of(const nlohmann::json& json, const char* name, std::string_view what) {
  require<FormatError>(json.is_object() && json.contains(name) && json[name].is_string() &&
                           !json[name].get_ref<const std::string&>().empty(),
                       what, ": \"", name, "\" must be a text");
  return json[name].get<std::string>();
}

}  // namespace

MachineFile machine_from_json(const nlohmann::json& json, std::string_view what) {
  MachineFile out;
  out.machine.name = text_of(json, "name", what);
  out.machine.target = text_of(json, "target", what);
  require<FormatError>(json.contains("figures") && json["figures"].is_object(), what,
                       ": \"figures\" must be an object");
  const nlohmann::json& figures = json["figures"];
  for (const auto& [name, entry] : figures.items())
    require<FormatError>(
        std::any_of(kFields.begin(), kFields.end(), [&](const Field& f) { return name == f.name; }), what,
        ": there is no figure ", printable(name));
  for (const Field& field : kFields) {
    const std::string where = concat(what, ": ", field.name);
    require<FormatError>(figures.contains(field.name), what, ": no figure ", field.name);
    const nlohmann::json& entry = figures[field.name];
    MachineFigure figure{field.name, text_of(entry, "kind", where), text_of(entry, "source", where)};
    require<FormatError>(figure.kind == "published" || figure.kind == "derived" || figure.kind == "assumed",
                         where, ": \"kind\" is ", printable(figure.kind),
                         ", expected published, derived or assumed");
    require<FormatError>(entry.contains("value") && entry["value"].is_number(), where,
                         ": \"value\" must be a number");
    figure.value = entry["value"].get<double>();
    require<FormatError>(figure.value >= field.least && figure.value <= field.most, where, " is ",
                         figure.value, ", expected ", field.least, " to ", field.most);
    out.machine.*field.member = figure.value;
    out.figures.push_back(std::move(figure));
  }
  require<FormatError>(
      out.machine.last_level_mb == 0 || (out.machine.last_level_gb > 0 && out.machine.last_level_latency > 0),
      what, ": a last-level cache without bandwidth or latency");
  return out;
}

MachineFile read_machine(const std::filesystem::path& path) {
  return machine_from_json(parse_json_file(path), printable(path.string()));
}

std::vector<MachineFile> machines() {
  std::vector<MachineFile> out;
  for (const auto& entry : std::filesystem::directory_iterator(share_path("machines")))
    if (entry.path().extension() == ".json") out.push_back(read_machine(entry.path()));
  std::sort(out.begin(), out.end(),
            [](const MachineFile& a, const MachineFile& b) { return a.machine.name < b.machine.name; });
  return out;
}

Machine find_machine(std::string_view name) {
  const std::vector<MachineFile> all = machines();
  std::string known;
  // A target's own card: the one that emulated devices stand for comes first in its file's "target".
  for (const MachineFile& f : all) {
    if (letters_and_digits(f.machine.name) == letters_and_digits(name)) return f.machine;
    known += concat(known.empty() ? "" : ", ", f.machine.name);
  }
  std::optional<Machine> found;
  for (const MachineFile& f : all)
    if (f.machine.target == name && (!found || f.machine.compute_units > found->compute_units))
      found = f.machine;
  if (found) return *found;
  throw UsageError(concat("no description of ", printable(name), "; there are ", known));
}

}  // namespace rocm_sd::emu
