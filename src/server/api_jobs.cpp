// The server's own API: jobs that are submitted, watched, cancelled, and whose results are fetched.
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "server/api.hpp"
#include "server/job_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

[[noreturn]] void unknown_job(const ApiContext& context, const std::string& id) {
  if (context.jobs.was_known(id))
    throw RequestError({410, "expired", "this job's result has been dropped", ""});
  throw RequestError({404, "job_not_found", concat("no job ", printable(id)), ""});
}

JobView find_job(const ApiContext& context, const std::string& id) {
  auto job = context.jobs.view(id);
  if (!job) unknown_job(context, id);
  return std::move(*job);
}

void submit(ApiContext& context, Exchange& exchange) {
  JobRequest request =
      read_job(read_json_body(exchange.request->body), context.catalog, context.options.draw);
  const std::string id = submit_job(context, std::move(request), exchange.request->client);
  HttpResponse response = json_text_response(job_json(find_job(context, id)), 202);
  response.headers.emplace_back("Location", "/v1/jobs/" + id);
  exchange.reply->send(std::move(response));
}

void list(ApiContext& context, Exchange& exchange) {
  json jobs = json::array();
  for (const JobView& job : context.jobs.list()) jobs.push_back(json::parse(job_json(job)));
  exchange.reply->send(json_response({{"jobs", jobs}}));
}

void status(ApiContext& context, Exchange& exchange) {
  exchange.reply->send(json_text_response(job_json(find_job(context, exchange.part("id")))));
}

void cancel(ApiContext& context, Exchange& exchange) {
  const std::string& id = exchange.part("id");
  if (!context.jobs.cancel(id)) unknown_job(context, id);
  exchange.reply->send(json_text_response(job_json(find_job(context, id))));
}

void remove(ApiContext& context, Exchange& exchange) {
  const std::string& id = exchange.part("id");
  if (!is_final(find_job(context, id).state))
    throw RequestError(
        {409, "job_not_finished", "a job is removed when it is finished; cancel it first", ""});
  context.jobs.remove(id);
  exchange.reply->send({204, "", "", {}});
}

const char* content_type(const std::string& format) {
  return format == "jpeg" ? "image/jpeg" : format == "webp" ? "image/webp" : "image/png";
}

void image(ApiContext& context, Exchange& exchange) {
  const JobView job = find_job(context, exchange.part("id"));
  const std::string& text = exchange.part("index");
  size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size() || index >= job.images.size())
    throw RequestError({404, "image_not_found",
                        concat("expected an image from 0 to ", static_cast<int64_t>(job.images.size()) - 1),
                        ""});
  HttpResponse response;
  response.content_type = content_type(job.request.format);
  response.body = job.images[index]->bytes;
  response.headers.emplace_back("Cache-Control", "private, max-age=600, immutable");
  exchange.reply->send(std::move(response));
}

// The last preview; asking for it has the next one made.
void preview(ApiContext& context, Exchange& exchange) {
  const JobView job = find_job(context, exchange.part("id"));
  context.jobs.look(job.id);
  if (!job.preview)
    throw RequestError({404, "preview_not_found",
                        is_final(job.state) ? "a job that has ended has images in place of previews"
                                            : "no preview yet: one is made while the job is sampled",
                        ""});
  HttpResponse response;
  response.content_type = content_type(job.request.format);
  response.body = job.preview->bytes;
  response.headers.emplace_back("Cache-Control", "no-store");
  exchange.reply->send(std::move(response));
}

// Whether the client asked for them: "?previews=true".
bool wants_previews(const HttpRequest& request) {
  const auto asked = request.query.find("previews");
  return asked != request.query.end() && (asked->second == "true" || asked->second == "1");
}

std::string preview_event(const std::string& id, const JobPreview& preview) {
  return json{{"id", id},
              {"step", preview.step},
              {"total", preview.total},
              {"width", preview.width},
              {"height", preview.height},
              {"picture", encode_base64(preview.bytes)}}
      .dump();
}

// Server-sent events: one for each change, the last one is the job's end.
void events(ApiContext& context, Exchange& exchange) {
  const uint64_t key = context.jobs.new_key();
  const std::string id = exchange.part("id");
  find_job(context, id);
  exchange.reply->begin({200, "text/event-stream", "", {{"Cache-Control", "no-store"}}});
  exchange.reply->on_gone([&context, id, key] { context.jobs.unwatch(id, key); });
  const auto tell = [reply = exchange.reply](const std::string& what, const std::string& text,
                                             bool is_final) {
    reply->write(concat("event: ", what, "\ndata: ", text, "\n\n"));
    if (is_final) reply->end();
  };
  if (!context.jobs.watch(id, key, tell)) return exchange.reply->end();
  if (wants_previews(*exchange.request))
    context.jobs.watch_previews(id, key, [id, reply = exchange.reply](const JobPreview& preview) {
      reply->write(concat("event: preview\ndata: ", preview_event(id, preview), "\n\n"));
    });
}

// The same as texts of a WebSocket: {"event", "job"}. Previews are binary messages: a file each.
void socket_events(ApiContext& context, const Exchange& exchange, std::shared_ptr<Socket> socket) {
  const uint64_t key = context.jobs.new_key();
  const std::string id = exchange.part("id");
  socket->on_gone([&context, id, key] { context.jobs.unwatch(id, key); });
  context.jobs.watch(id, key, [socket](const std::string& what, const std::string& text, bool is_final) {
    socket->send_text(concat("{\"event\":\"", what, "\",\"job\":", text, "}"));
    if (is_final) socket->close();
  });
  if (wants_previews(*exchange.request))
    context.jobs.watch_previews(id, key,
                                [socket](const JobPreview& preview) { socket->send_binary(preview.bytes); });
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/jobs", submit, BodySize::kImages},
    {"GET", "/v1/jobs", list},
    {"GET", "/v1/jobs/{id}", status},
    {"DELETE", "/v1/jobs/{id}", remove},
    {"POST", "/v1/jobs/{id}/cancel", cancel},
    {"GET", "/v1/jobs/{id}/events", events, BodySize::kSmall, socket_events},
    {"GET", "/v1/jobs/{id}/images/{index}", image},
    {"GET", "/v1/jobs/{id}/preview", preview},
};

}  // namespace

std::span<const Route> job_routes() { return kRoutes; }

}  // namespace rocm_sd::server
