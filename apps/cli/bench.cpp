// rocm-sd bench: problems of ops, and pictures.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/model_shapes.hpp"
#include "analysis/paper_gpu.hpp"
#include "analysis/planned_model.hpp"
#include "apps/cli/bench_scaling.hpp"
#include "apps/cli/commands.hpp"
#include "apps/cli/interrupt.hpp"
#include "apps/cli/tuning_problems.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "kernels/family/kernel_map_page.hpp"
#include "measurement/bench.hpp"
#include "measurement/clocks.hpp"
#include "measurement/energy.hpp"
#include "measurement/explain.hpp"
#include "measurement/explore.hpp"
#include "measurement/record.hpp"
#include "measurement/scenario.hpp"
#include "rocm_sd/pipeline.hpp"
#include "tuning/choices.hpp"
#include "tuning/race.hpp"

namespace rocm_sd::cli {
namespace {

struct BenchCommand {
  ProblemSource source;
  std::string device = "auto", mode = "time", impls, scenario, json, markdown, prompt = "a photo of a cat";
  std::string sampler = "auto", explain, gpu;
  std::string devices;  // of the scaling scenario
  std::vector<int> ranks = {1, 2};
  std::vector<std::string> splits = {"images", "guidance", "rows"}, savings;
  double seconds = 0.5, per_second = 0.1;
  int queries = 5, warm_up = 1, threads = 0, top = 0;
  bool warm_caches = false, quiet = false;
};

void write(const std::string& path, const std::string& text) {
  if (path == "-") return fmt::print("{}", text);
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void write_reports(const BenchCommand& c, const nlohmann::ordered_json& json, const std::string& markdown,
                   const std::string& text) {
  if (!c.json.empty())
    write(c.json, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  if (!c.markdown.empty()) write(c.markdown, markdown);
  if (c.json != "-" && c.markdown != "-") fmt::print("{}", text);
}

// ---- problems ----

// The problems raced into the user's table, as `rocm-sd tune` does with all of a model's.
void tune_problems(const BenchCommand& c, Device& device,
                   const std::vector<measurement::PlannedWorkload>& problems) {
  const std::filesystem::path path = tuning::user_table_file(tuning::identity_of(device));
  require<UsageError>(!path.empty(),
                      "bench --mode tune: neither XDG_CACHE_HOME nor HOME is set, where the table would lie");
  tuning::Journal journal(path);
  const measurement::TuneReport report =
      measurement::tune(device, problems, journal,
                        {.again = true,
                         .per_problem = c.seconds,
                         .progress =
                             [&](const measurement::TuneProgress& p) {
                               if (!c.quiet && !p.op.empty())
                                 fmt::print(stderr, "{}/{} {} {}\n", p.done, p.all, p.op, p.text);
                             },
                         .note = [](const std::string& text) { fmt::print(stderr, "note: {}\n", text); },
                         .cancelled = interrupted});
  journal.compact();
  const nlohmann::ordered_json json = {{"mode", "tune"},
                                       {"device", device.name()},
                                       {"table", printable_path(path)},
                                       {"problems", report.problems},
                                       {"tuned", report.done},
                                       {"left", report.left},
                                       {"changed", report.changed},
                                       {"wrong", report.wrong},
                                       {"untuned_ms", report.default_seconds * 1e3},
                                       {"tuned_ms", report.tuned_seconds * 1e3}};
  const std::string text = fmt::format(
      "{}: {} shapes with a choice, {} tuned, {} changed; a picture's launches of them {:.3f} ms untuned, "
      "{:.3f} ms tuned\n{}\n",
      device.name(), report.problems, report.done, report.changed, report.default_seconds * 1e3,
      report.tuned_seconds * 1e3, printable_path(path));
  write_reports(c, json, text, text);
  require<GenerationError>(report.wrong == 0, "bench: ", report.wrong, " choices gave wrong results");
  require<CancelledError>(!report.cancelled, "cancelled");
}

void bench_problems(const BenchCommand& c) {
  Device& device = open_counting_device(c.device);
  auto problems = problems_of(c.source, device);
  const auto cost = [](const measurement::PlannedWorkload& p) {
    try {
      return p.launches * measurement::parse_workload(p.op, p.text).flops;
    } catch (const UsageError&) {
      return 0.0;
    }
  };
  std::ranges::stable_sort(problems, [&](const auto& a, const auto& b) { return cost(a) > cost(b); });
  if (c.top > 0 && problems.size() > static_cast<size_t>(c.top)) problems.resize(static_cast<size_t>(c.top));
  if (c.mode == "tune") return tune_problems(c, device, problems);
  using measurement::BenchMode;
  const measurement::BenchOptions options{
      .mode = c.mode == "check"  ? BenchMode::kCheck
              : c.mode == "list" ? BenchMode::kList
                                 : BenchMode::kTime,
      .impls = c.impls.empty() && c.mode != "time" ? "*" : c.impls,
      .seconds = c.seconds,
      .caches = c.warm_caches ? measurement::Caches::kAsIs : measurement::Caches::kCold,
      .progress =
          [&](const std::string& text) {
            if (!c.quiet) fmt::print(stderr, "{}\n", text);
          },
      .cancelled = interrupted};
  const measurement::BenchReport report = measurement::bench(device, problems, options);
  require<UsageError>(!report.rows.empty() || interrupted(), "bench: no candidate's name begins with ",
                      printable(options.impls), "; --mode list shows their names");
  write_reports(c, bench_json(report), bench_markdown(report), bench_text(report));
  require<CancelledError>(!interrupted(), "cancelled");
  size_t wrong = 0;
  for (const measurement::BenchRow& row : report.rows) wrong += row.accuracy && !row.accuracy->ok();
  require<GenerationError>(wrong == 0, "bench: ", wrong, " candidates gave wrong results");
}

// ---- pictures ----

LoadOptions scenario_model(const BenchCommand& c) {
  require<UsageError>(c.source.models.size() == 1,
                      "bench --scenario: expected --model with one checkpoint's path");
  for (const KnownModel& known : known_models())
    require<UsageError>(
        known.name != c.source.models[0] || path_exists(known.name),
        "bench --scenario draws pictures: expected a checkpoint's path, got ", known.name,
        ", whose shapes alone are known (tools/checkpoints/make_random_checkpoint.py writes one of its "
        "size with random weights)");
  LoadOptions load;
  load.model = c.source.models[0];
  load.dtype = c.source.dtype;
  load.weights = c.source.weights;
  return load;
}

GenerateRequest scenario_request(const BenchCommand& c) {
  GenerateRequest request;
  request.prompt = c.prompt;
  request.width = static_cast<int>(c.source.width);
  request.height = static_cast<int>(c.source.height);
  request.steps = c.source.steps;
  request.sampler = c.sampler;
  request.seed = 1;
  if (c.source.no_guidance) request.cfg_scale = 1;
  return request;
}

class Pictures {
 public:
  explicit Pictures(const BenchCommand& c)
      : command_(c), clocks_(measurement::clock_meter(open_counting_device(c.device))) {
    LoadOptions load = scenario_model(c);
    load.device = c.device;
    const auto begin = std::chrono::steady_clock::now();
    pipeline_.emplace(Pipeline::load(load));
    load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    request_ = scenario_request(c);
  }

  void draw(int count) {
    GenerateRequest request = request_;
    request.batch = count;
    request.seed += drawn_;
    drawn_ += count;
    const Callbacks callbacks{.progress = {}, .cancelled = interrupted};
    const GenerateResult result = pipeline_->generate(request, callbacks);
    clocks_.read_due();
    for (const StageTime& t : result.times) stages_[t.stage].push_back(t.seconds);
    peak_ = std::max(peak_, result.device_peak);
  }
  void forget() { stages_.clear(); }

  const ModelInfo& info() const { return pipeline_->info(); }
  double load_seconds() const { return load_seconds_; }
  uint64_t peak() const { return peak_; }
  MemoryPlan plan() { return pipeline_->plan(request_); }
  const std::map<std::string, std::vector<double>>& stages() const { return stages_; }
  int steps() const { return request_.steps; }
  int drawn() const { return drawn_; }
  const measurement::ClockLog& clocks() const { return clocks_; }

 private:
  const BenchCommand& command_;
  measurement::ClockLog clocks_;
  std::optional<Pipeline> pipeline_;
  GenerateRequest request_;
  double load_seconds_ = 0;
  int drawn_ = 0;
  uint64_t peak_ = 0;
  std::map<std::string, std::vector<double>> stages_;
};

// One picture after the other, and what its stages take.
void bench_stages(const BenchCommand& c, Pictures& pictures, nlohmann::ordered_json& json,
                  std::string& text) {
  for (int i = 0; i < c.warm_up; ++i) pictures.draw(1);
  pictures.forget();
  for (int i = 0; i < c.queries && !interrupted(); ++i) pictures.draw(1);
  require<CancelledError>(!interrupted(), "cancelled");
  double all = 0;
  for (const auto& [stage, seconds] : pictures.stages()) {
    const double median = tuning::median(seconds);
    const auto [least, most] = std::ranges::minmax(seconds);
    all += median;
    const bool steps = stage == "sample";
    if ((c.scenario == "unet" && !steps) || (c.scenario == "vae" && stage != "decode")) continue;
    json["stages"][stage] = {
        {"median_seconds", median}, {"min", least}, {"max", most}, {"samples", seconds.size()}};
    text += fmt::format("{:<10} {:>10.3f} ms ({:.3f} to {:.3f}){}\n", stage, median * 1e3, least * 1e3,
                        most * 1e3,
                        steps ? fmt::format(", {:.3f} ms a step", median * 1e3 / pictures.steps()) : "");
    if (steps) json["stages"][stage]["median_seconds_per_step"] = median / pictures.steps();
  }
  if (c.scenario != "e2e") return;
  json["picture_seconds"] = all;
  text += fmt::format("{:<10} {:>10.3f} ms\n", "picture", all * 1e3);
}

void bench_requests(const BenchCommand& c, Pictures& pictures, nlohmann::ordered_json& json,
                    std::string& text) {
  using measurement::ScenarioKind;
  measurement::ScenarioHooks hooks = measurement::real_time([&](int count) { pictures.draw(count); });
  hooks.cancelled = interrupted;
  const measurement::ScenarioResult result =
      measurement::run_scenario({.kind = c.scenario == "stream"    ? ScenarioKind::kStream
                                         : c.scenario == "offline" ? ScenarioKind::kOffline
                                                                   : ScenarioKind::kServer,
                                 .queries = c.queries,
                                 .warm_up = c.warm_up,
                                 .batch = static_cast<int>(c.source.batch),
                                 .per_second = c.per_second},
                                hooks);
  json["result"] = scenario_json(result);
  text += fmt::format(
      "{} pictures in {:.3f} s: {:.4f} a second; latency {:.3f} s at the median, {:.3f} s at 90%, {:.3f} s "
      "at most\n",
      result.queries, result.seconds, result.queries_per_second(), result.percentile(0.5),
      result.percentile(0.9), result.percentile(1));
}

void bench_pictures(const BenchCommand& c) {
  Pictures pictures(c);
  const MemoryPlan plan = pictures.plan();
  Device& device = open_counting_device(c.device);
  const auto counters = measurement::energy_counters(device);
  nlohmann::ordered_json json = measurement::record_head("bench " + c.scenario, device);
  json.update({{"scenario", c.scenario},
               {"model", pictures.info().name},
               {"dtype", pictures.info().dtype},
               {"width", c.source.width},
               {"height", c.source.height},
               {"steps", c.source.steps},
               {"version", version()},
               {"load_seconds", pictures.load_seconds()},
               {"planned_bytes", plan.total()}});
  std::string text =
      fmt::format("{} on {}, {}, {} steps; loaded in {:.2f} s\n", pictures.info().name, device.name(),
                  pictures.info().dtype, c.source.steps, pictures.load_seconds());
  const double before = counters.empty() ? 0 : counters[0]->joules();
  const bool stages = c.scenario == "unet" || c.scenario == "vae" || c.scenario == "e2e";
  stages ? bench_stages(c, pictures, json, text) : bench_requests(c, pictures, json, text);
  if (const nlohmann::ordered_json clocks = pictures.clocks().json(); !clocks.is_null())
    json["clocks"] = clocks;
  text += fmt::format("{}; driver {}, commit {}\n", pictures.clocks().text(), json.value("driver", ""),
                      json.value("commit", ""));
  if (pictures.peak() > 0) json["peak_bytes"] = pictures.peak();
  text += fmt::format(
      "memory     {:.3f} GB planned{}\n", static_cast<double>(plan.total()) * 1e-9,
      pictures.peak() ? fmt::format(", {:.3f} GB at most", static_cast<double>(pictures.peak()) * 1e-9) : "");
  if (!counters.empty()) {
    const double joules = (counters[0]->joules() - before) / pictures.drawn();
    json["joules_per_picture"] = joules;
    text += fmt::format("energy     {:.1f} J a picture ({})\n", joules, counters[0]->name());
  }
  write_reports(c, json, "```\n" + text + "```\n", text);
}

// One picture on several ranks, and pictures on several drawers.
void bench_ranks(const BenchCommand& c) {
  ScalingBench bench{.load = scenario_model(c),
                     .request = scenario_request(c),
                     .devices = {},
                     .ranks = c.ranks,
                     .splits = c.splits,
                     .saved = {},
                     .pictures = c.queries,
                     .warm_up = c.warm_up,
                     .quiet = c.quiet};
  for (const std::string& options : c.savings) bench.saved.push_back(with_savings(bench.request, options));
  for (std::string rest = c.devices.empty() ? c.device : c.devices; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    bench.devices.push_back(rest.substr(0, comma));
    rest.erase(0, comma + 1);
  }
  for (std::string& name : bench.devices) {
    const DeviceKind kind = open_counting_device(name).kind();
    if (name == "auto")
      name = kind == DeviceKind::kHost ? "cpu" : kind == DeviceKind::kHip ? "hip:0" : "cuda:0";
  }
  nlohmann::ordered_json json;
  const ScalingReport report = bench_scaling(bench, json);
  write_reports(c, json, report.markdown, report.text);
}

// ---- shapes ----

// The problems of known models as --shapes reads them: nothing is run, whatever the device.
void print_shapes(const BenchCommand& c) {
  require<UsageError>(c.source.file.empty() && c.source.ops.empty() && c.source.weights == "auto",
                      "bench --mode shapes lists what is planned for --model: it takes no --shapes, --ops or "
                      "--weights");
  require<UsageError>(c.source.dtype == "auto" || c.source.dtype == "f16" || c.source.dtype == "bf16",
                      "bench --mode shapes lists what a GPU computes: expected --dtype f16 or bf16, got ",
                      printable(c.source.dtype));
  std::vector<ShapeSet> sets;
  for (const std::string& name : c.source.models) {
    require<UsageError>(
        name.find('/') == std::string::npos && !path_exists(name),
        "bench --mode shapes plans known models: expected sd15, sd21, sdxl or sdxl-refiner, got ",
        printable(name), " (--mode list plans a checkpoint)");
    const KnownModel& model = known_model(name);
    sets.push_back({name, c.source.height ? c.source.height : model.side,
                    c.source.width ? c.source.width : model.side,
                    c.source.dtype == "bf16" ? DType::kBF16 : DType::kF16});
  }
  fmt::print("{}", model_shapes_text(sets.empty() ? default_shape_sets() : sets));
}

// ---- which kernel, and why ----

void explain_problem(const BenchCommand& c) {
  const size_t blank = c.explain.find(' ');
  require<UsageError>(blank != std::string::npos,
                      "bench --explain: expected an op and its problem as tables name them, got ",
                      printable(c.explain));
  const measurement::Workload workload =
      measurement::parse_workload(c.explain.substr(0, blank), c.explain.substr(blank + 1));
  std::unique_ptr<GpuDevice> paper;
  if (!c.gpu.empty()) {
    const GpuProduct* product = find_gpu_product(c.gpu);
    require<UsageError>(product != nullptr, "bench --gpu: ", printable(c.gpu),
                        " is not in the table; `rocm-sd predict` lists them");
    paper = make_paper_gpu(*product);
  }
  Device& device = paper ? *paper : open_counting_device(c.device);
  const measurement::Explained explained = measurement::explain(device, workload);
  write_reports(c, explained_json(explained), "```\n" + explained_text(explained) + "```\n",
                explained_text(explained));
}

void run_bench(BenchCommand& c) {
  if (c.mode == "shapes") return print_shapes(c);
  if (c.mode == "kernel-map") return fmt::print("{}", kernel_map_page());
  if (!c.explain.empty()) return explain_problem(c);
  if (c.threads > 0) omp_set_num_threads(c.threads);
  for (const std::string& file : {c.json, c.markdown})
    if (!file.empty() && file != "-") require_writable(file);
  catch_interrupts();
  if (c.scenario == "scaling") return bench_ranks(c);
  c.scenario.empty() ? bench_problems(c) : bench_pictures(c);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto c = std::make_shared<BenchCommand>();
  CLI::App* sub = app.add_subcommand("bench", "time and check ops on a model's shapes, or whole pictures");
  add_problem_options(sub, c->source);
  sub->add_option("--device", c->device, "cpu, auto, hip[:N], cuda[:N] or emu:TARGET [auto]");
  sub->add_option(
         "--mode", c->mode,
         "time, check, list or tune (into the user's table), of ops; shapes: print the models' problems for "
         "--shapes; kernel-map: print docs/reference/kernel-map.md [time]")
      ->check(CLI::IsMember({"time", "check", "list", "tune", "shapes", "kernel-map"}));
  sub->add_option("--explain", c->explain,
                  "print why a problem (\"linear 8192x320x320 f16 bias\") takes the kernel that it takes");
  sub->add_option("--gpu", c->gpu, "with --explain: a GPU that is not here, by its product's name");
  sub->add_option("--impl", c->impls,
                  "candidates by the beginning of their names: gpu,onednn; '=gpu 64x64x64' by all of it; '*' "
                  "all [what the "
                  "op picks]");
  sub->add_option("--scenario", c->scenario,
                  "whole pictures: unet, vae, e2e, stream, offline, server; or scaling, over ranks")
      ->check(CLI::IsMember({"unet", "vae", "e2e", "stream", "offline", "server", "scaling"}));
  add_text(sub, "--devices", c->devices,
           "of the scaling scenario: names with commas, taken in turn [--device for all ranks]");
  sub->add_option("--ranks", c->ranks, "of the scaling scenario [1,2]")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  sub->add_option(
         "--splits", c->splits,
         "of the scaling scenario: images, guidance, rows, guidance-rows, tensor, displaced[:CALLS], "
         "guidance-displaced[:CALLS] [images,guidance,rows]")
      ->delimiter(',');
  sub->add_option(
         "--savings", c->savings,
         "of the scaling scenario: what several ranks draw with, too, beside one rank's exact picture; "
         "deep-cache=N, sada, token-merge=SHARE, ... with commas between them; again for another row")
      ->expected(1)
      ->take_all();
  add_number(sub, "--seconds", c->seconds, "of timing a shape [0.5]", 0, 3600);
  add_number(sub, "--top", c->top, "only so many shapes, those with most work", 1, 100000);
  sub->add_flag("--warm", c->warm_caches, "leave in the caches what the run before left there");
  add_number(sub, "--queries", c->queries, "pictures of a scenario [5]", 1, 1000000);
  add_number(sub, "--warm-up", c->warm_up, "pictures that are not counted [1]", 0, 1000);
  add_number(sub, "--rate", c->per_second, "queries a second of the server scenario [0.1]", 1e-6, 1e6);
  sub->add_option("--prompt", c->prompt, "of a scenario's pictures");
  sub->add_option("--sampler", c->sampler, "of a scenario's pictures [auto]");
  add_text(sub, "--json", c->json, "write JSON to this file; -: print it");
  add_text(sub, "--markdown", c->markdown, "write a Markdown table to this file; -: print it");
  add_number(sub, "--threads", c->threads, "CPU threads [all cores]", 1, 1024);
  sub->add_flag("-q,--quiet", c->quiet, "no progress");
  sub->callback([c] { run_bench(*c); });
}

}  // namespace rocm_sd::cli
