#include "server/api.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/log.hpp"

namespace rocm_sd::server {
namespace {

// Whether the path has the route's form; fills the parts in braces.
bool matches(std::string_view pattern, std::string_view path, std::map<std::string, std::string>& parts) {
  while (!pattern.empty() && !path.empty()) {
    if (pattern[0] != '{') {
      if (pattern[0] != path[0]) return false;
      pattern.remove_prefix(1);
      path.remove_prefix(1);
      continue;
    }
    const size_t close = pattern.find('}');
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty()) return false;
    parts[std::string(pattern.substr(1, close - 1))] = part;
    pattern.remove_prefix(close + 1);
    path.remove_prefix(part.size());
  }
  return pattern.empty() && path.empty();
}

const std::vector<Route>& routes() {
  static const std::vector<Route> table = all_routes();
  return table;
}

struct Found {
  const Route* route = nullptr;
  std::map<std::string, std::string> parts;
  std::string allowed;  // methods that the path has, where the asked one is none of them
};

// ComfyUI's clients put /api before its paths.
std::string_view route_path(const HttpRequest& request) {
  constexpr std::string_view kPrefix = "/api";
  std::string_view path = request.path;
  if (path.starts_with("/api/") && is_comfy_path(path.substr(kPrefix.size())))
    path.remove_prefix(kPrefix.size());
  return path;
}

Found find_route(const HttpRequest& request) {
  Found found;
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  for (const Route& route : routes()) {
    std::map<std::string, std::string> parts;
    if (!matches(route.path, route_path(request), parts)) continue;
    if (route.method == method) {
      found.route = &route;
      found.parts = std::move(parts);
      return found;
    }
    found.allowed += (found.allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  return found;
}

std::optional<HttpResponse> refuse_unknown(const ApiContext& context, const HttpRequest& head,
                                           const Found& found) {
  if (found.route != nullptr) return std::nullopt;
  if (!found.allowed.empty()) {
    HttpResponse response = error_response(
        head.path, {405, "method_not_allowed", concat(head.path, ": expected ", found.allowed), ""});
    response.headers.emplace_back("Allow", found.allowed);
    return response;
  }
  if (head.method == "GET" && context.files.contains(head.path)) return std::nullopt;
  return error_response(
      head.path,
      {404, "not_found", concat("no such path: ", printable(head.path), "; /openapi.json lists them"), ""});
}

}  // namespace

std::vector<Route> all_routes() {
  std::vector<Route> all;
  for (const auto& part : {status_routes(), job_routes(), openai_routes(), web_ui_routes(), extras_routes(),
                           comfy_routes(), comfy_list_routes()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::optional<HttpResponse> check_head(ApiContext& context, const HttpRequest& head) {
  const AccessRules& rules = context.options.access;
  if (head.method == "OPTIONS") {
    if (auto response = preflight(head, rules)) return response;
  }
  if (const auto error = check_access(head, rules)) {
    HttpResponse response = error_response(head.path, *error);
    if (error->status == 401)
      response.headers.emplace_back("WWW-Authenticate", "Basic realm=\"rocm-sd\", charset=\"UTF-8\"");
    return response;
  }
  return refuse_unknown(context, head, find_route(head));
}

uint64_t body_limit(const ApiContext& context, const HttpRequest& head) {
  const Found found = find_route(head);
  const bool images = found.route != nullptr && found.route->body == BodySize::kImages;
  return images ? context.options.http.image_body_bytes : context.options.http.body_bytes;
}

void handle(ApiContext& context, std::shared_ptr<const HttpRequest> request, std::shared_ptr<Reply> reply) {
  try {
    Found found = find_route(*request);
    if (found.route == nullptr) {
      const auto file = context.files.find(request->path);
      return reply->send(file != context.files.end() ? file->second
                                                     : *refuse_unknown(context, *request, found));
    }
    Exchange exchange{request, reply, std::move(found.parts)};
    found.route->handle(context, exchange);
  } catch (const RequestError& e) {
    HttpResponse response = error_response(request->path, e.error());
    if (e.error().status == 429) response.headers.emplace_back("Retry-After", "5");
    reply->send(std::move(response));
  } catch (const UsageError& e) {
    reply->send(error_response(request->path, {400, "invalid_request", e.what(), ""}));
  } catch (const std::exception& e) {
    log().warn("{} {}: {}", request->method, printable(request->path), e.what());
    reply->send(error_response(request->path, {500, "internal_error", "internal error", ""}));
  }
}

bool takes_socket(ApiContext& context, const HttpRequest& head) {
  const Found found = find_route(head);
  if (found.route == nullptr || found.route->open == nullptr) return false;
  const auto id = found.parts.find("id");
  return id == found.parts.end() || context.jobs.view(id->second).has_value();
}

void open_socket(ApiContext& context, std::shared_ptr<const HttpRequest> request,
                 std::shared_ptr<Socket> socket) {
  Found found = find_route(*request);
  if (found.route == nullptr || found.route->open == nullptr) return;
  const Exchange exchange{std::move(request), nullptr, std::move(found.parts)};
  try {
    found.route->open(context, exchange, std::move(socket));
  } catch (const std::exception& e) {
    log().warn("{}: {}", printable(exchange.request->path), e.what());
  }
}

std::string submit_job(ApiContext& context, JobRequest request, const std::string& client, QueuePlace place) {
  std::vector<StepMemory> devices;
  std::optional<StepMemory> known;
  for (const auto& worker : context.workers) {
    const WorkerStatus status = worker->status();
    devices.push_back(status.memory);
    if (status.model == request.model && status.memory.available > 0) known = status.memory;
  }
  if (known) {
    const ModelEntry model = context.catalog.find(request.model);
    for (StepMemory& device : devices) {  // of other models' steps nothing counts but the device's memory
      const uint64_t available = device.available;
      device = *known;
      device.available = available;
    }
    admit(request, {model.default_width, model.default_height}, devices);
  }
  return context.jobs.submit(std::move(request), client, place);
}

void run_job(ApiContext& context, Exchange& exchange, JobRequest request,
             std::function<HttpResponse(const JobView&)> answer) {
  request.awaited = true;
  const std::string id = submit_job(context, std::move(request), exchange.request->client);
  exchange.reply->on_gone([&context, id] { context.jobs.cancel(id); });
  const auto send = [&context, id, answer = std::move(answer), reply = exchange.reply,
                     path = exchange.request->path] {
    const auto job = context.jobs.view(id);
    try {
      reply->send(job ? answer(*job)
                      : error_response(path, {410, "expired", "the result has been dropped", ""}));
    } catch (const RequestError& e) {
      reply->send(error_response(path, e.error()));
    } catch (const std::exception& e) {
      reply->send(error_response(path, {500, "internal_error", e.what(), ""}));
    }
  };
  context.jobs.watch(id, 0, [&context, send](const std::string&, const std::string&, bool is_final) {
    if (is_final) context.post(send);
  });
}

void require_completed(const JobView& job) {
  if (job.state == JobState::kFailed)
    throw RequestError({job.error.status, job.error.type, job.error.message, ""});
  if (job.state == JobState::kCancelled) throw RequestError({503, "cancelled", "the job was cancelled", ""});
}

}  // namespace rocm_sd::server
