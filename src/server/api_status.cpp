// Whether the server lives, what it does, and what it offers: for probes, Prometheus, clients and the page.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "rocm_sd/pipeline.hpp"
#include "server/api.hpp"
#include "server/job_request.hpp"
#include "server/openapi.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

json workers_json(const ApiContext& context) {
  json workers = json::array();
  for (const auto& worker : context.workers) {
    const WorkerStatus s = worker->status();
    workers.push_back(
        {{"device", s.device},
         {"device_name", s.device_name},
         {"state", s.state},
         {"model", text_or_null(s.model)},
         {"error", text_or_null(s.error)},
         {"pid", s.pid},
         {"restarts", s.restarts},
         {"seconds_per_step", s.steps > 0 ? s.step_seconds / static_cast<double>(s.steps) : 0.0}});
  }
  return workers;
}

// The supervisor answers: it lives.
void health(ApiContext& context, Exchange& exchange) {
  const double up = std::chrono::duration<double>(std::chrono::steady_clock::now() - context.started).count();
  exchange.reply->send(json_response({{"status", "ok"}, {"version", version()}, {"uptime", up}}));
}

// A model is in a worker's memory: a request can be drawn at once.
void ready(ApiContext& context, Exchange& exchange) {
  bool any = false;
  for (const auto& worker : context.workers) any = any || worker->ready();
  const JobCounts counts = context.jobs.counts();
  exchange.reply->send(json_response({{"ready", any},
                                      {"workers", workers_json(context)},
                                      {"queued", counts.queued},
                                      {"running", counts.running}},
                                     any ? 200 : 503));
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

class MetricsText {
 public:
  void add(const char* name, const char* type, const char* help) {
    out += fmt::format("# HELP rocm_sd_{0} {2}\n# TYPE rocm_sd_{0} {1}\n", name, type, help);
  }
  template <class T>
  void value(const char* name, T value, const std::string& labels = "") {
    out += fmt::format("rocm_sd_{}{} {}\n", name, labels.empty() ? "" : "{" + labels + "}", value);
  }
  std::string out;
};

void metrics(ApiContext& context, Exchange& exchange) {
  const JobCounts jobs = context.jobs.counts();
  MetricsText text;
  text.add("jobs_queued", "gauge", "Jobs that wait.");
  text.value("jobs_queued", jobs.queued);
  text.add("jobs_running", "gauge", "Jobs that a worker draws.");
  text.value("jobs_running", jobs.running);
  text.add("jobs_total", "counter", "Jobs by their end; rejected ones found the queue full.");
  text.value("jobs_total", jobs.completed, "state=\"completed\"");
  text.value("jobs_total", jobs.failed, "state=\"failed\"");
  text.value("jobs_total", jobs.cancelled, "state=\"cancelled\"");
  text.value("jobs_total", jobs.rejected, "state=\"rejected\"");
  text.add("job_seconds_total", "counter", "Time that completed jobs ran.");
  text.value("job_seconds_total", jobs.run_seconds);
  text.add("images_total", "counter", "Images drawn.");
  text.value("images_total", jobs.images);
  text.add("result_bytes", "gauge", "Image files that are kept.");
  text.value("result_bytes", jobs.result_bytes);
  text.add("worker_up", "gauge", "1 where a model is in the worker's memory.");
  for (const auto& worker : context.workers)
    text.value("worker_up", worker->ready() ? 1 : 0, fmt::format("device=\"{}\"", worker->status().device));
  text.add("worker_restarts_total", "counter", "Ends of the worker process that were not asked for.");
  for (const auto& worker : context.workers)
    text.value("worker_restarts_total", worker->status().restarts,
               fmt::format("device=\"{}\"", worker->status().device));
  text.add("step_seconds_total", "counter", "Time of sampling steps.");
  for (const auto& worker : context.workers)
    text.value("step_seconds_total", worker->status().step_seconds,
               fmt::format("device=\"{}\"", worker->status().device));
  text.add("steps_total", "counter", "Sampling steps.");
  for (const auto& worker : context.workers)
    text.value("steps_total", worker->status().steps, fmt::format("device=\"{}\"", worker->status().device));
  text.add("http_responses_total", "counter", "Responses by class of their status.");
  for (int i = 2; i <= 5; ++i)
    text.value("http_responses_total", context.http.by_class[i].load(), fmt::format("class=\"{}xx\"", i));
  text.add("resident_bytes", "gauge", "Memory of the supervisor process.");
  text.value("resident_bytes", resident_bytes());
  exchange.reply->send({200, "text/plain; version=0.0.4", text.out, {}});
}

const char* type_name(OptionType type) {
  switch (type) {
    case OptionType::kInteger: return "integer";
    case OptionType::kNumber: return "number";
    case OptionType::kFlag: return "boolean";
    case OptionType::kImage: return "image";
    case OptionType::kNumberList: return "numbers";
    case OptionType::kLoraList: return "loras";
    case OptionType::kControlList: return "controls";
    case OptionType::kIpAdapterList: return "ip_adapters";
    case OptionType::kTextList: return "texts";
    default: return "text";
  }
}

// What a request may hold and what this server's limits are.
void capabilities(ApiContext& context, Exchange& exchange) {
  const ServerOptions& o = context.options;
  json options = json::array();
  for (const KnownOption& option : request_options())
    options.push_back({{"name", option.name},
                       {"type", type_name(option.type)},
                       {"group", option.group},
                       {"help", option.help}});
  json models = json::array(), loras = json::array();
  for (const ModelEntry& model : context.catalog.models())
    models.push_back({{"name", model.name},
                      {"kind", model.kind},
                      {"width", model.default_width},
                      {"height", model.default_height},
                      {"current", model.name == context.catalog.current().name}});
  json embeddings = json::array(), controls = json::array(), ip_adapters = json::array();
  for (const NamedFile& lora : context.catalog.loras()) loras.push_back(lora.name);
  for (const NamedFile& one : context.catalog.embeddings()) embeddings.push_back(one.name);
  for (const NamedFile& one : context.catalog.controls()) controls.push_back(one.name);
  for (const NamedFile& one : context.catalog.ip_adapters()) ip_adapters.push_back(one.name);
  const json limits = {{"pixels", o.draw.pixels},
                       {"batch", o.draw.batch},
                       {"join", o.draw.join},
                       {"images", o.draw.images},
                       {"steps", o.draw.steps},
                       {"queue", o.jobs.queued},
                       {"queue_per_client", o.jobs.queued_per_client},
                       {"body_bytes", o.http.body_bytes},
                       {"image_body_bytes", o.http.image_body_bytes},
                       {"header_bytes", o.http.header_bytes},
                       {"connections", o.http.connections},
                       {"keep_seconds", o.jobs.keep_results.count()},
                       {"keep_bytes", o.jobs.keep_bytes}};
  exchange.reply->send(json_response({{"version", version()},
                                      {"models", models},
                                      {"loras", loras},
                                      {"embeddings", embeddings},
                                      {"controls", controls},
                                      {"ip_adapters", ip_adapters},
                                      {"samplers", sampler_names()},
                                      {"schedules", schedule_names_list()},
                                      {"options", options},
                                      {"limits", limits}}));
}

void openapi(ApiContext& context, Exchange& exchange) {
  exchange.reply->send(json_response(openapi_document(context.options.draw)));
}

constexpr Route kRoutes[] = {
    {"GET", "/health", health},        {"GET", "/ready", ready},
    {"GET", "/metrics", metrics},      {"GET", "/v1/capabilities", capabilities},
    {"GET", "/openapi.json", openapi},
};

}  // namespace

HostMemory host_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kilobytes = 0;
  HostMemory memory;
  while (file >> key >> kilobytes) {
    std::getline(file, unit);
    if (key == "MemTotal:") memory.total = kilobytes << 10;
    if (key == "MemAvailable:") memory.free = kilobytes << 10;
  }
  return memory;
}

std::span<const Route> status_routes() { return kRoutes; }

}  // namespace rocm_sd::server
