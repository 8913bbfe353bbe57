// The server's APIs: one table of routes, and what their handlers share.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/catalog.hpp"
#include "server/comfy_store.hpp"
#include "server/http.hpp"
#include "server/job_store.hpp"
#include "server/options.hpp"
#include "server/worker_supervisor.hpp"

namespace rocm_sd::server {

struct HttpCounts {
  std::atomic<uint64_t> by_class[6] = {};  // 1xx .. 5xx
};

// What handlers work with; all of it is thread-safe.
struct ApiContext {
  const ServerOptions& options;
  Catalog& catalog;
  JobStore& jobs;
  std::vector<std::unique_ptr<WorkerSupervisor>>& workers;
  std::map<std::string, HttpResponse> files;  // of the page, by path
  ComfyStore& comfy;
  std::function<void(std::function<void()>)> post;  // runs on the threads of handlers
  HttpCounts http;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

// One request on its way.
struct Exchange {
  std::shared_ptr<const HttpRequest> request;
  std::shared_ptr<Reply> reply;
  std::map<std::string, std::string> parts;  // of the path: {"id", "1234"}

  const std::string& part(const std::string& name) const { return parts.at(name); }
};

// What is done with a WebSocket on a route's path; throws nothing.
using OpenSocket = void (*)(ApiContext& context, const Exchange& exchange, std::shared_ptr<Socket> socket);

enum class BodySize { kSmall, kImages };

struct Route {
  const char* method;
  const char* path;  // "/v1/jobs/{id}"
  // Sends a reply, now or later. What it throws becomes an error response.
  void (*handle)(ApiContext& context, Exchange& exchange);
  BodySize body = BodySize::kSmall;
  OpenSocket open = nullptr;  // of a GET that may be upgraded; a part {id} of its path is a job's
};

std::span<const Route> job_routes();         // /v1/jobs
std::span<const Route> status_routes();      // /health, /ready, /metrics, /openapi.json, the page
std::span<const Route> web_ui_routes();      // /sdapi/v1: AUTOMATIC1111's
std::span<const Route> extras_routes();      // /sdapi/v1/extra-*: A1111's, that enlarge pictures
std::span<const Route> openai_routes();      // /v1/images, /v1/models
std::span<const Route> comfy_routes();       // /prompt, /history, ...: ComfyUI's, and the same below /api
std::span<const Route> comfy_list_routes();  // /system_stats, /models, ...: the same
std::vector<Route> all_routes();

// Before the body is read: 403, 401, 404, 405, 413 and so on, or nothing.
std::optional<HttpResponse> check_head(ApiContext& context, const HttpRequest& head);
uint64_t body_limit(const ApiContext& context, const HttpRequest& head);
// Finds the route and runs it; never throws.
void handle(ApiContext& context, std::shared_ptr<const HttpRequest> request, std::shared_ptr<Reply> reply);
bool takes_socket(ApiContext& context, const HttpRequest& head);
void open_socket(ApiContext& context, std::shared_ptr<const HttpRequest> request,
                 std::shared_ptr<Socket> socket);

// Submits, waits without a thread, and answers with what `answer` makes of the finished job. A client that
// goes away cancels it.
void run_job(ApiContext& context, Exchange& exchange, JobRequest request,
             std::function<HttpResponse(const JobView&)> answer);

// The id of the job, which waits now. Throws what JobStore::submit() and admit() (admission.hpp) do.
std::string submit_job(ApiContext& context, JobRequest request, const std::string& client,
                       QueuePlace place = QueuePlace::kBack);

struct HostMemory {
  uint64_t total = 0, free = 0;  // bytes
};
HostMemory host_memory();

// Throws RequestError unless the job was completed.
void require_completed(const JobView& job);

}  // namespace rocm_sd::server
