#include "kernels/family/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/json.hpp"

namespace rocm_sd {
namespace {

using Json = nlohmann::json;

// An object whose fields are all read, so that a misspelt one is an error.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    require<FormatError>(json_.is_object(), where_, ": expected an object");
  }
  const std::string& where() const { return where_; }
  const Json* find(const char* name) {
    read_.insert(name);
    const auto found = json_.find(name);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& at(const char* name) {
    const Json* found = find(name);
    require<FormatError>(found != nullptr, where_, ": \"", name, "\" is missing");
    return *found;
  }
  Fields object(const char* name) { return {at(name), concat(where_, ".", name)}; }
  double number(const char* name) { return number_of(at(name), concat(where_, ".", name)); }
  double number_or(const char* name, double otherwise) { return find(name) ? number(name) : otherwise; }
  std::string text_or(const char* name, const char* otherwise) {
    const Json* found = find(name);
    if (!found) return otherwise;
    require<FormatError>(found->is_string(), where_, ".", name, ": expected a text");
    return found->get<std::string>();
  }
  template <size_t kCount>
  std::array<double, kCount> numbers(const char* name) {
    const Json& list = array(name, kCount);
    std::array<double, kCount> out{};
    for (size_t i = 0; i < kCount; ++i) out[i] = number_of(list[i], concat(where_, ".", name));
    return out;
  }
  const Json& array(const char* name, size_t count) {
    const Json& list = at(name);
    require<FormatError>(list.is_array() && (count == 0 || list.size() == count), where_, ".", name,
                         ": expected a list", count ? concat(" of ", count) : std::string());
    return list;
  }
  void end() const {
    for (const auto& [name, value] : json_.items())
      require<FormatError>(read_.contains(name), where_, ": unknown field ", printable(name, 64));
  }

 private:
  static double number_of(const Json& value, const std::string& where) {
    require<FormatError>(value.is_number(), where, ": expected a number");
    const auto number = value.get<double>();
    require<FormatError>(std::isfinite(number) && number >= 0, where, ": expected a number of at least 0");
    return number;
  }

  const Json& json_;
  std::string where_;
  std::set<std::string> read_;
};

CostSource parse_source(Fields f) {
  CostSource out{f.text_or("origin", ""), f.text_or("device", ""), f.text_or("driver", ""),
                 f.text_or("date", ""),   f.text_or("commit", ""), f.text_or("command", ""),
                 f.text_or("note", "")};
  f.end();
  const bool measured = out.origin == "measured";
  require<FormatError>(measured || out.origin == "modelled" || out.origin == "guessed", f.where(),
                       ": \"origin\" must be \"measured\", \"modelled\" or \"guessed\"");
  require<FormatError>(!measured || (!out.device.empty() && !out.driver.empty() && !out.date.empty() &&
                                     !out.commit.empty() && !out.command.empty()),
                       f.where(), ": a measurement names its device, driver, date, commit and command");
  return out;
}

std::string source_of(Fields& f, const CostModel& model) {
  std::string source = f.text_or("source", "");
  require<FormatError>(model.sources.contains(source), f.where(), ": \"source\" is none of \"sources\"");
  return source;
}

AttentionCosts parse_attention(Fields f, const CostModel& model) {
  AttentionCosts out;
  const Json& relative = f.at("relative_cost");
  require<FormatError>(relative.is_object(), f.where(), ".relative_cost: expected an object");
  for (const auto& [name, entry] : relative.items()) {
    Fields e(entry, concat(f.where(), ".relative_cost.", printable(name, 64)));
    const double cost = e.number("cost");
    require<FormatError>(cost > 0, e.where(), ": expected a cost above 0");
    out.relative.emplace(name, AttentionCosts::Entry{cost, source_of(e, model)});
    e.end();
  }
  f.end();
  return out;
}

GemmCosts parse_gemm(Fields f, const CostModel& model) {
  const GemmCosts out{
      source_of(f, model),       f.number("mma_per_cycle"),        f.number("wgmma_per_cycle"),
      f.number("f32_per_cycle"), f.number("load_bytes_per_cycle"), f.number("workgroup_cycles"),
      f.number("step_cycles"),   f.number("element_cycles"),       f.number("partial_element_factor"),
      f.number("overlap_loss"),  f.number("reduce_launch_cycles"), f.number("partial_byte_cycles")};
  f.end();
  return out;
}

EightBitCosts parse_eight_bit(Fields f, const CostModel& model) {
  const EightBitCosts out{source_of(f, model), f.number("mma_per_cycle"), f.number("workgroup_cycles"),
                          f.number("reduce_launch_cycles"), f.number("partial_byte_cycles")};
  f.end();
  return out;
}

ConvCosts parse_conv(Fields f, const CostModel& model) {
  const auto rates = [](Fields& g) {
    return ConvRates{g.number("mma_per_ns"), g.number("bytes_per_ns"), g.number("reduce_ns")};
  };
  Fields f32 = f.object("f32");
  const ConvCosts out{source_of(f, model), rates(f), rates(f32)};
  f32.end();
  f.end();
  return out;
}

ConvWgmmaCosts parse_conv_wgmma(Fields f, const CostModel& model) {
  ConvWgmmaCosts out{source_of(f, model),
                     {},
                     f.number("launch_ns"),
                     f.number("round_ns"),
                     f.number("reduce_ns"),
                     f.number("output_bytes_per_ns"),
                     f.number("partial_bytes_per_ns")};
  for (const Json& step : f.array("steps", 0)) {
    Fields s(step, concat(f.where(), ".steps"));
    out.steps.push_back({static_cast<int>(s.number("rows")), static_cast<int>(s.number("columns")),
                         s.number("alone_ns"), s.number("shared_ns")});
    s.end();
  }
  f.end();
  return out;
}

ConvWinogradCosts parse_conv_winograd(Fields f, const CostModel& model) {
  const ConvWinogradCosts out{source_of(f, model), f.number("step_cycles"), f.number("workgroup_cycles"),
                              f.number("implicit_mma_per_cycle")};
  f.end();
  return out;
}

ModelledCosts parse_modelled(Fields f, const CostModel& model) {
  ModelledCosts out{source_of(f, model), f.number("launch_ns"), f.number("memory_bytes_per_ns"), {}};
  require<FormatError>(out.memory_bytes_per_ns > 0, f.where(), ".memory_bytes_per_ns: expected more than 0");
  for (const auto& [name, times] : f.at("kernels").items()) {
    Fields k(times, concat(f.where(), ".kernels.", printable(name, 64)));
    const KernelTime time{static_cast<int64_t>(k.number("resident")), k.number("alone_ns"),
                          k.number("alone_step_ns"), k.number("full_ns"), k.number("full_step_ns")};
    require<FormatError>(time.resident >= 1, k.where(), ".resident: expected a number of at least 1");
    k.end();
    out.kernels.emplace(name, time);
  }
  f.end();
  return out;
}

constexpr const char* kRowNames[kTmaRows] = {"matrix", "gathered", "boxes", "halo"};

TmaCosts parse_tma(Fields f, const CostModel& model) {
  TmaCosts out{source_of(f, model),           f.number("launch_ns"),
               f.number("multicast_ns"),      f.number("gathered_multicast_ns"),
               f.numbers<4>("geglu_tile_ns"), {}};
  for (size_t i = 0; i < kTmaRows; ++i) {
    Fields r = f.object(kRowNames[i]);
    out.rows[i] = {r.numbers<4>("step_ns"),      r.number("tile_ns"),  r.number("column_ns"),
                   r.number("multicast_factor"), r.number("split_ns"), r.number("exchanged_byte_ns")};
    r.end();
  }
  f.end();
  return out;
}

TmaPingPongCosts::Tile parse_tile(Fields f) {
  const TmaPingPongCosts::Tile out{f.number("step_ns"), f.number("epilogue_ns"), f.number_or("tile_ns", 0)};
  f.end();
  return out;
}

TmaPingPongCosts parse_ping_pong(Fields f, const CostModel& model) {
  TmaPingPongCosts out{source_of(f, model), f.number("multicast_factor"), parse_tile(f.object("geglu")), {}};
  for (size_t i = 0; i < kTmaRows; ++i) {
    const Json& tiles = f.array(kRowNames[i], 3);
    for (size_t t = 0; t < 3; ++t)
      out.rows[i][t] = parse_tile({tiles[t], concat(f.where(), ".", kRowNames[i])});
  }
  f.end();
  return out;
}

TmaResidentCosts parse_resident(Fields f, const CostModel& model) {
  const TmaResidentCosts out{source_of(f, model), f.number("launch_ns"), f.number("filter_byte_ns"),
                             f.numbers<2>("step_ns"), f.numbers<2>("box_ns")};
  f.end();
  return out;
}

}  // namespace

const AttentionCosts::Entry& AttentionCosts::entry(std::string_view name) const {
  const auto found = relative.find(name);
  require<InternalError>(found != relative.end(), "share/cost: no relative cost \"", name, "\" of attention");
  return found->second;
}

const ModelledCosts* CostModel::modelled_for(std::string_view target) const {
  if (const auto found = time_model.find(target); found != time_model.end()) return &found->second;
  return time_model.empty() ? nullptr : &time_model.rbegin()->second;
}

const KernelTime* find_kernel_time(const ModelledCosts& costs, std::string_view kernel) {
  if (const auto found = costs.kernels.find(kernel); found != costs.kernels.end()) return &found->second;
  constexpr std::string_view kBf16 = "_bf16_";
  const size_t at = kernel.find(kBf16);
  if (at == std::string_view::npos) return nullptr;
  const auto found =
      costs.kernels.find(concat(kernel.substr(0, at), "_f16_", kernel.substr(at + kBf16.size())));
  return found == costs.kernels.end() ? nullptr : &found->second;
}

namespace {

// Of the busiest compute unit: `each` workgroups of so many steps on average.
double unit_ns(const KernelTime& kernel, int64_t each, double steps) {
  const double alone = kernel.alone_ns + steps * kernel.alone_step_ns;
  const double full = std::max(alone, kernel.full_ns + steps * kernel.full_step_ns);
  const auto resident = static_cast<double>(kernel.resident), many = static_cast<double>(each);
  // Where more run than fit, the next one starts as soon as one ends: they soon run out of step, and the last
  // ones are not alone for long.
  if (each >= kernel.resident) return full * many / resident;
  return alone + (full - alone) * (many - 1) / (resident - 1);
}

}  // namespace

double launch_ns(const KernelTime& kernel, int64_t groups, int64_t compute_units, double steps) {
  const int64_t units = std::max<int64_t>(1, compute_units);
  return unit_ns(kernel, (groups + units - 1) / units, steps);
}

double shared_launch_ns(const ModelledCosts& costs, const KernelTime& kernel, int64_t compute_units,
                        const SharedLaunch& launch) {
  if (launch.splits <= 1) return launch_ns(kernel, launch.tiles, compute_units, launch.steps);
  const int64_t units = std::max<int64_t>(1, compute_units), shared = launch.tiles - launch.whole;
  const int64_t whole = launch.whole / units, parts = (shared * launch.splits + units - 1) / units;
  const double steps =
      static_cast<double>(whole) * launch.steps + static_cast<double>(parts) * launch.part_steps;
  // Sums of two parts pass through memory once, of more parts all of them; half of it beside other work.
  const double passed =
      static_cast<double>(shared) * (launch.splits == 2 ? 1 : launch.splits) * launch.tile_floats;
  return unit_ns(kernel, whole + parts, steps / static_cast<double>(whole + parts)) +
         sizeof(float) * passed / costs.memory_bytes_per_ns;
}

double reduce_ns(const ModelledCosts& costs, double floats, int splits) {
  return costs.launch_ns + 2 * sizeof(float) * floats * splits / costs.memory_bytes_per_ns;
}

CostModel parse_cost_model(std::string_view text, std::string_view what) {
  const Json json = parse_json(text, {}, what);
  Fields f(json, std::string(what));
  CostModel out;
  out.family = f.text_or("family", "");
  for (const auto& [name, source] : f.at("sources").items())
    out.sources.emplace(name, parse_source({source, concat(what, ".sources.", printable(name, 64))}));
  out.attention = parse_attention(f.object("attention"), out);
  out.gemm = parse_gemm(f.object("gemm"), out);
  if (f.find("gemm_eight_bit")) out.gemm_eight_bit = parse_eight_bit(f.object("gemm_eight_bit"), out);
  out.conv = parse_conv(f.object("conv"), out);
  if (f.find("conv_winograd")) out.conv_winograd = parse_conv_winograd(f.object("conv_winograd"), out);
  if (f.find("conv_wgmma")) out.conv_wgmma = parse_conv_wgmma(f.object("conv_wgmma"), out);
  if (f.find("tma")) out.tma = parse_tma(f.object("tma"), out);
  if (f.find("tma_ping_pong")) out.tma_ping_pong = parse_ping_pong(f.object("tma_ping_pong"), out);
  if (f.find("tma_resident")) out.tma_resident = parse_resident(f.object("tma_resident"), out);
  if (const Json* targets = f.find("time_model"))
    for (const auto& [target, costs] : targets->items())
      out.time_model.emplace(
          target, parse_modelled({costs, concat(what, ".time_model.", printable(target, 16))}, out));
  f.end();
  return out;
}

const CostModel& cost_model(std::string_view family) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<CostModel>, std::less<>> models;
  const std::lock_guard lock(mutex);
  if (const auto found = models.find(family); found != models.end()) return *found->second;
  const char* folder = std::getenv("ROCM_SD_COST");
  CostModel model;
  if (folder && *folder) {
    const std::filesystem::path path = std::filesystem::path(folder) / concat(family, ".json");
    const std::string what = printable(path.string(), 1024);
    model = parse_cost_model(parse_json_file(path).dump(), what);
  } else {
    const auto found = embedded_costs().find(family);
    require<InternalError>(found != embedded_costs().end(), "no share/cost/", family, ".json was built in");
    model = parse_cost_model(found->second, concat("share/cost/", family, ".json"));
  }
  require<FormatError>(model.family == family, "the costs of ", family, " are of ",
                       printable(model.family, 64));
  return *models.emplace(std::string(family), std::make_unique<CostModel>(std::move(model))).first->second;
}

}  // namespace rocm_sd
