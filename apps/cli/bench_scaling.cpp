#include "apps/cli/bench_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "apps/cli/interrupt.hpp"
#include "base/error.hpp"
#include "measurement/energy.hpp"
#include "measurement/record.hpp"
#include "pipeline/options.hpp"
#include "runtime/devices.hpp"
#include "tuning/race.hpp"

namespace rocm_sd::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Joules of all counters of the devices, each counter once; nothing where a device has none.
class Energy {
 public:
  explicit Energy(const std::vector<std::string>& devices) {
    for (const std::string& name : std::set<std::string>(devices.begin(), devices.end())) {
      auto counters = measurement::energy_counters(device_named(name));
      known_ = known_ && !counters.empty();
      for (auto& counter : counters) counters_[counter->name()] = std::move(counter);
    }
  }
  std::optional<double> joules() const {
    if (!known_) return std::nullopt;
    double sum = 0;
    for (const auto& [name, counter] : counters_) sum += counter->joules();
    return sum;
  }

 private:
  bool known_ = true;
  std::map<std::string, std::unique_ptr<measurement::EnergyCounter>> counters_;
};

// What was measured of one split on so many ranks.
struct Row {
  std::string split, savings;  // savings: of the request; empty: it is exact but for the split
  int ranks = 1;
  bool oversubscribed = false;
  std::vector<double> seconds;                 // a picture; with images a round of a picture a drawer
  double speedup = 1;                          // of a picture, or of the pictures a second
  uint64_t bytes = 0, messages = 0;            // sent by all ranks, a picture
  double transfer_share = 0;                   // of the rank that sends, receives and waits longest
  std::optional<double> joules;                // a picture
  uint64_t peak_bytes = 0, planned_bytes = 0;  // of the first device
  int most_off = 0;                            // of 255, from the picture of one rank
  double psnr = std::numeric_limits<double>::infinity();

  bool weak() const { return split == "images"; }
  std::string name() const { return savings.empty() ? split : split + " + " + savings; }
  double median() const { return tuning::median(seconds); }
};

void compare(Row& row, const Image& got, const Image& want) {
  require<GenerationError>(got.rgb.size() == want.rgb.size(), "bench: split ", row.name(), " drew ",
                           got.width, " x ", got.height, ", one rank ", want.width, " x ", want.height);
  double squares = 0;
  for (size_t i = 0; i < got.rgb.size(); ++i) {
    const int off = std::abs(int{got.rgb[i]} - int{want.rgb[i]});
    row.most_off = std::max(row.most_off, off);
    squares += off * off;
  }
  if (squares > 0)
    row.psnr =
        std::min(row.psnr, 10 * std::log10(255.0 * 255.0 * static_cast<double>(got.rgb.size()) / squares));
}

class Bench {
 public:
  explicit Bench(const ScalingBench& bench) : bench_(bench) {
    require<UsageError>(!bench.devices.empty(), "bench --scenario scaling: expected --device or --devices");
  }

  ScalingReport run(nlohmann::ordered_json& json) {
    measure("images", 1);
    require<GenerationError>(!rows_.empty(), "bench: one rank draws nothing: ", left_out_.front());
    for (const std::string& split : bench_.splits)
      for (const int ranks : bench_.ranks)
        if (ranks > 1) measure(split, ranks);
    return report(json);
  }

 private:
  std::string device_of(int rank) const {
    return bench_.devices[static_cast<size_t>(rank) % bench_.devices.size()];
  }

  // More ranks than GPUs of the list; on the CPU more than its threads.
  bool oversubscribes(int ranks) const {
    const std::set<std::string> distinct(bench_.devices.begin(), bench_.devices.end());
    const bool cpu = distinct.contains("cpu");
    const size_t places = cpu ? std::max(1u, std::thread::hardware_concurrency()) : distinct.size();
    return static_cast<size_t>(ranks) > places;
  }

  void measure(const std::string& split, int ranks) {
    if (!bench_.quiet) fmt::print(stderr, "{} on {} rank{}\n", split, ranks, ranks > 1 ? "s" : "");
    LoadOptions load = bench_.load;
    load.split = ranks > 1 ? split : "images";
    for (int rank = 0; rank < ranks; ++rank) load.devices += (rank ? "," : "") + device_of(rank);
    const auto unless_refused = [&](const std::string& savings, const auto& body) {
      try {
        body();
      } catch (const UsageError& e) {
        left_out_.push_back(fmt::format("{} on {} ranks: {}", Row{.split = split, .savings = savings}.name(),
                                        ranks, e.what()));
      }
      require<CancelledError>(!interrupted(), "cancelled");
    };
    std::optional<MultiPipeline> pipeline;
    unless_refused("", [&] {
      pipeline.emplace(MultiPipeline::load(load));
      rows_.push_back(draw(*pipeline, split, ranks, {"", bench_.request}));
    });
    if (!pipeline || ranks == 1) return;
    for (const SavedRequest& saved : bench_.saved)
      unless_refused(saved.name, [&] { rows_.push_back(draw(*pipeline, split, ranks, saved)); });
  }

  Row draw(MultiPipeline& pipeline, const std::string& split, int ranks, const SavedRequest& drawn) {
    Row row{.split = split, .savings = drawn.name, .ranks = ranks, .oversubscribed = oversubscribes(ranks)};
    const Callbacks callbacks{.progress = {}, .cancelled = interrupted};
    const size_t round = ranks > 1 && row.weak() ? static_cast<size_t>(ranks) : 1;
    const auto draw_round = [&](const MultiPipeline::ResultTaker& take) {
      pipeline.generate_each(
          [&](size_t i) { return i < round ? std::optional(drawn.request) : std::nullopt; }, take, callbacks);
    };
    for (int i = 0; i < bench_.warm_up; ++i) draw_round([](size_t, const GenerateResult&) {});
    const Energy energy(load_devices(ranks));
    const std::optional<double> before = energy.joules();
    double share = 0;
    for (int i = 0; i < bench_.pictures; ++i) {
      const auto begin = Clock::now();
      draw_round([&](size_t, const GenerateResult& result) {
        const Image& image = result.pictures.at(0).image;
        if (reference_.rgb.empty()) reference_ = image;
        compare(row, image, reference_);
        row.peak_bytes = std::max(row.peak_bytes, result.device_peak);
        row.planned_bytes = result.plan.total();
      });
      row.seconds.push_back(seconds_since(begin));
      share += count_traffic(row, pipeline.drawers());
    }
    row.transfer_share = share / bench_.pictures;
    if (before) row.joules = (*energy.joules() - *before) / static_cast<double>(round) / bench_.pictures;
    if (!rows_.empty()) row.speedup = rows_[0].median() / row.median() * static_cast<double>(round);
    return row;
  }

  std::vector<std::string> load_devices(int ranks) const {
    std::vector<std::string> out;
    for (int rank = 0; rank < ranks; ++rank) out.push_back(device_of(rank));
    return out;
  }

  // -> the share of the last picture's time.
  static double count_traffic(Row& row, const std::vector<DrawerInfo>& drawers) {
    double longest = 0;
    row.bytes = row.messages = 0;
    for (const DrawerInfo& drawer : drawers)
      for (const RankTraffic& rank : drawer.traffic) {
        row.bytes += rank.bytes;
        row.messages += rank.messages;
        longest = std::max(longest, rank.send_seconds + rank.receive_seconds);
      }
    return longest / row.seconds.back();
  }

  nlohmann::ordered_json row_json(const Row& row) const {
    const auto [least, most] = std::ranges::minmax(row.seconds);
    nlohmann::ordered_json out = {{"split", row.split},
                                  {"savings", row.savings},
                                  {"scaling", row.weak() ? "weak" : "strong"},
                                  {"ranks", row.ranks},
                                  {"oversubscribed", row.oversubscribed},
                                  {"median_seconds", row.median()},
                                  {"min", least},
                                  {"max", most},
                                  {"samples", row.seconds.size()},
                                  {"speedup", row.speedup},
                                  {"efficiency", row.speedup / row.ranks},
                                  {"bytes", row.bytes},
                                  {"messages", row.messages},
                                  {"transfer_share", row.transfer_share},
                                  {"planned_bytes", row.planned_bytes},
                                  {"most_off_of_255", row.most_off}};
    out["psnr_db"] = std::isfinite(row.psnr) ? nlohmann::ordered_json(row.psnr) : nullptr;  // null: equal
    if (row.peak_bytes > 0) out["peak_bytes"] = row.peak_bytes;
    if (row.joules) out["joules_per_picture"] = *row.joules;
    return out;
  }

  ScalingReport report(nlohmann::ordered_json& json) const {
    ScalingReport out;
    json = measurement::record_head("bench scaling", device_named(device_of(0)));
    json.update({{"scenario", "scaling"},
                 {"model", bench_.load.model},
                 {"width", reference_.width},
                 {"height", reference_.height},
                 {"steps", bench_.request.steps},
                 {"devices", bench_.devices},
                 {"version", version()},
                 {"left_out", left_out_}});
    json["rows"] = nlohmann::ordered_json::array();
    out.text = fmt::format("{} on {}, {} x {}, {} steps\n", printable(bench_.load.model),
                           fmt::join(bench_.devices, ","), reference_.width, reference_.height,
                           bench_.request.steps);
    size_t width = 14;
    for (const Row& row : rows_) width = std::max(width, row.name().size());
    out.text += fmt::format("{:<{}}{:>6}{:>11}{:>10}{:>12}{:>10}{:>11}{:>11}{:>10}{:>10}\n", "split",
                            width + 2, "ranks", "seconds", "speed-up", "efficiency", "MB sent", "messages",
                            "transfers", "J", "PSNR dB");
    out.markdown =
        "| split | ranks | seconds | speed-up | efficiency | MB sent | messages | transfers | J a picture | "
        "PSNR to one rank |\n|---|---|---|---|---|---|---|---|---|---|\n";
    bool crowded = false;
    for (const Row& row : rows_) {
      json["rows"].push_back(row_json(row));
      crowded = crowded || row.oversubscribed;
      const std::string ranks = fmt::format("{}{}", row.ranks, row.oversubscribed ? "*" : ""),
                        joules = row.joules ? fmt::format("{:.1f}", *row.joules) : "-",
                        psnr = std::isfinite(row.psnr) ? fmt::format("{:.1f}", row.psnr) : "equal";
      const double megabytes = static_cast<double>(row.bytes) / 1e6;
      out.text +=
          fmt::format("{:<{}}{:>6}{:>11.4f}{:>10.2f}{:>11.1f}%{:>10.2f}{:>11}{:>10.1f}%{:>10}{:>10}\n",
                      row.name(), width + 2, ranks, row.median(), row.speedup, 100 * row.speedup / row.ranks,
                      megabytes, row.messages, 100 * row.transfer_share, joules, psnr);
      out.markdown +=
          fmt::format("| {} | {} | {:.4f} | {:.2f} | {:.1f} % | {:.2f} | {} | {:.1f} % | {} | {} |\n",
                      row.name(), ranks, row.median(), row.speedup, 100 * row.speedup / row.ranks, megabytes,
                      row.messages, 100 * row.transfer_share, joules, psnr);
    }
    std::string notes =
        "images: a picture for each rank at once, seconds of all of them (weak scaling). transfers: of the "
        "rank that sends, receives and waits longest.\n";
    if (!bench_.saved.empty())
      notes +=
          "speed-ups and PSNR of savings: beside one rank's picture without them (docs/howto/savings.md).\n";
    if (crowded) notes += "*: more ranks than devices (or threads of the CPU): they share them.\n";
    for (const std::string& reason : left_out_) notes += "left out: " + reason + "\n";
    out.text += notes;
    out.markdown += "\n" + notes;
    return out;
  }

  const ScalingBench& bench_;
  std::vector<Row> rows_;
  std::vector<std::string> left_out_;
  Image reference_;
};

}  // namespace

SavedRequest with_savings(const GenerateRequest& request, const std::string& options) {
  constexpr std::array kSavings = {
      "deep-cache", "t-gate", "sada", "token-merge", "guidance-start", "guidance-end", "negative-min-sigma"};
  SavedRequest out{options, request};
  OptionTargets targets{.load = nullptr, .request = &out.request};
  size_t begin = 0;
  while (begin <= options.size()) {
    const size_t end = std::min(options.find(',', begin), options.size());
    const std::string option = options.substr(begin, end - begin);
    const size_t equals = std::min(option.find('='), option.size());
    const std::string name = option.substr(0, equals);
    require<UsageError>(std::ranges::count(kSavings, name) > 0, "--savings: expected ",
                        fmt::to_string(fmt::join(kSavings, ", ")), ", got \"", printable(name), "\"");
    set_option(targets, name, equals < option.size() ? option.substr(equals + 1) : "1");
    begin = end + 1;
  }
  return out;
}

ScalingReport bench_scaling(const ScalingBench& bench, nlohmann::ordered_json& json) {
  return Bench(bench).run(json);
}

}  // namespace rocm_sd::cli
