#include "server/server.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/paths.hpp"
#include "server/api.hpp"
#include "server/http_server.hpp"

namespace rocm_sd::server {
namespace {

using namespace std::chrono_literals;

// The page may load nothing from elsewhere, and no script but its own.
constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src "
    "'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr uint64_t kMaxPageFile = 1 << 20;

struct PageFile {
  const char *path, *file, *type;
};
constexpr PageFile kPageFiles[] = {
    {"/", "index.html", "text/html; charset=utf-8"},
    {"/app.css", "app.css", "text/css; charset=utf-8"},
    {"/app.js", "app.js", "text/javascript; charset=utf-8"},
    {"/controls.js", "controls.js", "text/javascript; charset=utf-8"},
    {"/core.js", "core.js", "text/javascript; charset=utf-8"},
    {"/fields.js", "fields.js", "text/javascript; charset=utf-8"},
    {"/gallery.js", "gallery.js", "text/javascript; charset=utf-8"},
    {"/grid.js", "grid.js", "text/javascript; charset=utf-8"},
    {"/history.js", "history.js", "text/javascript; charset=utf-8"},
    {"/jobs.js", "jobs.js", "text/javascript; charset=utf-8"},
    {"/mask.js", "mask.js", "text/javascript; charset=utf-8"},
    {"/store.js", "store.js", "text/javascript; charset=utf-8"},
    {"/icon.svg", "icon.svg", "image/svg+xml"},
};

std::map<std::string, HttpResponse> load_page() {
  std::map<std::string, HttpResponse> files;
  for (const PageFile& file : kPageFiles) {
    HttpResponse response;
    response.content_type = file.type;
    response.body = read_file(share_path(fmt::format("web/{}", file.file)), kMaxPageFile);
    response.headers = {{"Content-Security-Policy", kPagePolicy}, {"Cache-Control", "no-cache"}};
    files[file.path] = std::move(response);
  }
  return files;
}

// Connections, sockets of workers, files of the page.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Blocked in every thread that is made from now on; one of them waits for them.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

std::unique_ptr<Journal> open_journal(const ServerOptions& options) {
  return options.journal.empty() ? nullptr : std::make_unique<Journal>(options.journal);
}

class Server {
 public:
  explicit Server(const ServerOptions& options)
      : options_(options),
        catalog_(options.models, {options.models_folder, options.lora_folder, options.embedding_folder,
                                  options.control_folder, options.upscaler_folder}),
        journal_(open_journal(options)),
        jobs_(options.jobs, journal_.get()),
        context_{options_, catalog_, jobs_, workers_, {}, comfy_, {}, {}},
        http_(options.address, options.port, options.http, callbacks()) {
    if (options.page) context_.files = load_page();
    context_.post = [this](std::function<void()> work) { http_.post(std::move(work)); };
    jobs_.on_work([this] {
      for (const auto& worker : workers_) worker->wake();
    });
    jobs_.set_rules({options.lora_mode, [this](const std::string& name) { return default_size(name); }});
    std::vector<std::string> devices = options.devices;
    if (devices.empty()) devices = {"auto"};
    for (const std::string& device : devices)
      workers_.push_back(std::make_unique<WorkerSupervisor>(device, options_, catalog_, jobs_));
    for (const auto& worker : workers_) worker->start();
  }

  void run(const sigset_t& signals) {
    const std::string host =
        options_.address.find(':') == std::string::npos ? options_.address : "[" + options_.address + "]";
    fmt::print("http://{}:{}/\n", host, http_.port());
    std::fflush(stdout);
    std::thread keeper([this] { keep(); });
    std::thread waiter([this, signals] { wait_for_end(signals); });
    http_.run();
    http_.join_handlers();
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    end_.notify_all();
    keeper.join();
    waiter.join();
    jobs_.close("the server is shutting down");
    for (const auto& worker : workers_) worker->end();
  }

 private:
  std::pair<int, int> default_size(const std::string& name) const {
    for (const ModelEntry& model : catalog_.models())
      if (model.name == name) return {model.default_width, model.default_height};
    return {0, 0};
  }

  HttpCallbacks callbacks() {
    HttpCallbacks out;
    out.check_head = [this](const HttpRequest& head) { return check_head(context_, head); };
    out.body_limit = [this](const HttpRequest& head) { return body_limit(context_, head); };
    out.handle = [this](std::shared_ptr<const HttpRequest> request, std::shared_ptr<Reply> reply) {
      handle(context_, std::move(request), std::move(reply));
    };
    out.takes_socket = [this](const HttpRequest& head) { return takes_socket(context_, head); };
    out.open = [this](std::shared_ptr<const HttpRequest> request, std::shared_ptr<Socket> socket) {
      open_socket(context_, std::move(request), std::move(socket));
    };
    out.finish = [this](const HttpRequest& request, HttpResponse& response) {
      ++context_.http.by_class[std::clamp(response.status / 100, 0, 5)];
      add_cors_headers(request, options_.access, response);
      log().debug("{} {} {} {}", request.client, request.method, printable(request.path), response.status);
    };
    return out;
  }

  // Once a second: results that are too old go.
  void keep() {
    std::unique_lock lock(mutex_);
    while (!end_.wait_for(lock, 1s, [this] { return ended_; })) {
      lock.unlock();
      jobs_.expire();
      lock.lock();
    }
  }

  void wait_for_end(const sigset_t& signals) {
    int signal = 0;
    sigwait(&signals, &signal);
    log().info("ends: {} s for what runs; once more to end now", options_.grace.count());
    std::thread([signals] {
      int again = 0;
      sigwait(&signals, &again);
      std::_Exit(128 + again);
    }).detach();
    http_.stop_accepting();
    jobs_.close("the server is shutting down");
    const auto until = std::chrono::steady_clock::now() + options_.grace;
    while (!jobs_.idle() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(20ms);
    if (!jobs_.idle()) jobs_.stop_running();
    const auto last = std::chrono::steady_clock::now() + 5s;
    while (!jobs_.idle() && std::chrono::steady_clock::now() < last) std::this_thread::sleep_for(20ms);
    std::this_thread::sleep_for(100ms);  // the last answers go out
    http_.stop();
  }

  const ServerOptions& options_;
  Catalog catalog_;
  std::unique_ptr<Journal> journal_;  // null: none
  JobStore jobs_;
  std::vector<std::unique_ptr<WorkerSupervisor>> workers_;
  ComfyStore comfy_;
  ApiContext context_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  HttpServer http_;
};

void check_options(const ServerOptions& o) {
  require<UsageError>(is_loopback(o.address) || !o.access.api_key.empty() || o.insecure,
                      "listen: ", o.address,
                      " can be reached by others: give --api-key-file, or --insecure if that is meant");
  for (const std::string& origin : o.access.cors_origins)
    require<UsageError>(origin != "*" || !o.access.api_key.empty(),
                        "cors-origin: * lets every web site use this server: give --api-key-file, too");
}

}  // namespace

void serve(const ServerOptions& options) {
  check_options(options);
  // Bodies and pictures come and go: what is free goes back to the system, and threads share their heaps.
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  mallopt(M_MMAP_THRESHOLD, 1 << 17);
  raise_descriptor_limit();
  const sigset_t signals = block_signals();
  Server(options).run(signals);
}

}  // namespace rocm_sd::server
