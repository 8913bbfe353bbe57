#include "server/worker_main.hpp"

#include <omp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "pipeline/options.hpp"
#include "rocm_sd/upscale.hpp"
#include "runtime/device.hpp"
#include "runtime/devices.hpp"
#include "server/frame.hpp"
#include "server/worker_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kPreviewRest = 49;  // times what a look took, until the next: 2 % of the time at most

class Worker {
 public:
  explicit Worker(int socket) : socket_(socket) {}

  int run() {
    std::thread([this] { read_orders(); }).detach();  // ends with the process
    for (;;) {
      const Frame order = next_order();
      const json head = json::parse(order.json);
      const std::string type = head.at("type");
      if (type == "configure") configure(head);
      if (type == "job") work(head, order.bytes);
    }
  }

 private:
  void send(const json& head, std::string_view bytes = {}) {
    const std::lock_guard lock(write_mutex_);
    const std::string text = head.dump(-1, ' ', false, json::error_handler_t::replace);
    if (!write_frame(socket_, text, bytes)) std::_Exit(0);  // nobody is left to work for
  }

  // On a thread of its own: a cancel must be seen while the other one draws.
  void read_orders() {
    FrameReader reader;
    std::string piece(1 << 16, '\0');
    for (;;) {
      const ssize_t got = ::recv(socket_, piece.data(), piece.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) std::_Exit(0);
      reader.append(std::string_view(piece).substr(0, static_cast<size_t>(got)));
      while (auto frame = reader.next()) {
        const json head = json::parse(frame->json);
        const std::string type = head.at("type");
        if (type == "cancel") cancel_ = head.at("id").get<std::string>() == job_id() || cancel_;
        if (type == "skip") skip_ = true;
        if (type == "look") look_ = true;
        if (type == "quit") std::_Exit(0);
        if (type == "job") begin(head.at("id"));
        if (type == "configure" || type == "job") push(std::move(*frame));
      }
    }
  }

  void push(Frame frame) {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(frame));
    arrived_.notify_one();
  }
  Frame next_order() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !orders_.empty(); });
    Frame frame = std::move(orders_.front());
    orders_.pop_front();
    return frame;
  }
  // Here and not where the job is drawn: a cancel that follows at once must find it.
  void begin(const std::string& id) {
    const std::lock_guard lock(mutex_);
    id_ = id;
    cancel_ = skip_ = look_ = false;
  }
  std::string job_id() {
    const std::lock_guard lock(mutex_);
    return id_;
  }

  void configure(const json& head) {
    load_ = LoadOptions();
    OptionTargets targets{&load_, nullptr};
    for (const auto& [name, value] : head.at("load").get<LoadPairs>()) set_option(targets, name, value);
    if (const int threads = head.value("threads", 0); threads > 0) omp_set_num_threads(threads);
    report("load_failed", "", [&] { load(head.at("model")); });
    send({{"type", "idle"}});
  }

  // Progress at most 20 times a second but for a stage's ends, and a sign of life every half second.
  Callbacks callbacks() {
    Callbacks callbacks;
    callbacks.progress = [this](const Progress& p) {
      const auto now = Clock::now();
      if (p.step < p.total && p.stage == stage_ && now - told_ < std::chrono::milliseconds(50)) return true;
      stage_ = p.stage;
      told_ = alive_ = now;
      send({{"type", "progress"},
            {"stage", p.stage},
            {"step", p.step},
            {"total", p.total},
            {"round", round_}});
      return true;
    };
    callbacks.cancelled = [this] {
      if (Clock::now() - alive_ > std::chrono::milliseconds(500)) {
        alive_ = Clock::now();
        send({{"type", "alive"}});
      }
      return cancel_.load(std::memory_order_relaxed) || skip_.load(std::memory_order_relaxed);
    };
    return callbacks;
  }

  // Looks at the picture: those of `partials`, at their steps, and one where somebody asked and none was made
  // just now.
  void add_previews(Callbacks& callbacks, const json& head) {
    callbacks.wants_preview = [this, partials = head.at("partials").get<int>()](int step, int total) {
      preview_begin_ = Clock::now();
      if (is_partial(step, total, partials)) return true;
      return preview_begin_ >= next_preview_ && look_.exchange(false);
    };
    callbacks.preview = [this, head](const Preview& preview) {
      const json together = head.value("together", json::array());
      if (preview.image > 0 && together.empty()) return;  // the first of the batch stands for all
      const json& id =
          together.empty() ? head.at("id") : together.at(static_cast<size_t>(preview.image)).at("id");
      const std::vector<uint8_t> file =
          encode_image(preview.picture, format_named(head.at("format")), {.quality = head.at("quality")});
      send({{"type", "preview"},
            {"id", id},
            {"width", preview.picture.width},
            {"height", preview.picture.height},
            {"step", preview.step},
            {"total", preview.total},
            {"partial", is_partial(preview.step, preview.total, head.at("partials"))}},
           {reinterpret_cast<const char*>(file.data()), file.size()});
      const auto now = Clock::now();
      next_preview_ = now + kPreviewRest * (now - preview_begin_);
    };
  }

  void load(const std::string& path) {
    if (pipeline_ && path == load_.model) return;
    pipeline_.reset();  // two models may not fit
    upscaler_.reset();
    load_.model = path;
    send({{"type", "loading"}});
    pipeline_.emplace(Pipeline::load(load_, callbacks()));
    const ModelInfo& info = pipeline_->info();
    const MemoryInfo memory = device_named(load_.device).memory();
    send({{"type", "loaded"},
          {"path", path},
          {"memory_total", memory.total},
          {"memory_free", memory.free},
          {"device", info.device},
          {"dtype", info.dtype},
          {"width", info.default_width},
          {"height", info.default_height}});
  }

  void work(const json& head, std::string_view bytes) {
    round_ = 0;
    report("failed", head.at("id"),
           [&] { head.contains("enlargement") ? enlarge(head, bytes) : draw(head, bytes); });
    send({{"type", "idle"}});
  }

  void draw(const json& head, std::string_view bytes) {
    // A bad request ends before another model is loaded for it.
    if (head.at("model") != load_.model) read_order({}, head, bytes);
    load(head.at("model"));
    // What the client does not say is what the model asks for: distilled ones few steps without guidance.
    GenerateRequest begin = pipeline_->default_request();
    if (pipeline_->info().proposal.reason.empty())
      begin.steps = std::max(1, static_cast<int>(begin.steps * head.at("steps_factor").get<double>()));
    GenerateRequest request = read_order(std::move(begin), head, bytes);
    Callbacks watch = callbacks();
    const std::string preview = head.at("preview");
    if (preview != "none") {
      // Whoever asks for partial pictures by number gets pictures.
      request.preview.mode = head.at("partials") > 0 && preview == "proj" ? "vae" : preview;
      add_previews(watch, head);
    }
    std::vector<std::string> ids = {head.at("id").get<std::string>()};
    if (head.contains("together")) ids = draw_together(request, head.at("together"));
    std::vector<std::string> warnings;
    const int rounds = head.at("rounds");
    for (round_ = 0; round_ < rounds; ++round_) {
      GenerateRequest one = request;
      if (one.seed >= 0) one.seed += int64_t{round_} * one.batch;
      if (one.variation_seed >= 0) one.variation_seed += int64_t{round_} * one.batch;
      try {
        const GenerateResult result = pipeline_->generate(one, watch);
        for (size_t i = 0; i < result.pictures.size(); ++i)
          send_image(head, result.pictures[i], ids[std::min(i, ids.size() - 1)]);
        warnings = result.warnings;
      } catch (const CancelledError&) {
        if (cancel_ || !skip_.exchange(false)) throw;  // a skip ends this round alone
      }
    }
    send({{"type", "done"}, {"id", head.at("id")}, {"warnings", warnings}});
  }

  // Each of the job's files, enlarged; their parameters go along.
  void enlarge(const json& head, std::string_view bytes) {
    const json& how = head.at("enlargement");
    const std::string model = how.at("upscaler");
    if (!upscaler_ || upscaler_model_ != model) {
      upscaler_.reset();
      upscaler_.emplace(Upscaler::load({.model = model, .device = load_.device}));
      upscaler_model_ = model;
    }
    round_ = 0;
    for (const json& file : head.at("files")) {
      const MemoryFile held(bytes.substr(file.at("offset").get<size_t>(), file.at("size").get<size_t>()));
      const Image image = load_image(held.path());
      const int width = how.at("width"), height = how.at("height");
      double factor = how.at("factor");
      if (width > 0)
        factor =
            std::max(static_cast<double>(width) / image.width, static_cast<double>(height) / image.height);
      Picture out{
          upscaler_->upscale(image, {.factor = factor}, callbacks()), 0, read_parameters(held.path()), {}};
      if (width > 0 && how.at("crops").get<bool>()) out.image = middle_of(out.image, width, height);
      send_image(head, out, head.at("id"));
      ++round_;
    }
    send({{"type", "done"}, {"id", head.at("id")}, {"warnings", json::array()}});
  }

  void send_image(const json& head, const Picture& picture, const std::string& id) {
    const bool metadata = head.at("metadata");
    const std::vector<uint8_t> file =
        encode_image(picture.image, format_named(head.at("format")),
                     {.quality = head.at("quality"), .parameters = metadata ? picture.parameters : ""});
    send({{"type", "image"},
          {"id", id},
          {"seed", picture.seed},
          {"width", picture.image.width},
          {"height", picture.image.height},
          {"parameters", picture.parameters}},
         {reinterpret_cast<const char*>(file.data()), file.size()});
  }

  // Runs `body`; what it throws is told under `type`.
  template <class Body>
  void report(const char* type, const std::string& id, const Body& body) {
    const auto tell = [&](ExitCode code, const char* message) {
      send({{"type", type}, {"id", id}, {"code", static_cast<int>(code)}, {"message", message}});
    };
    try {
      body();
    } catch (const Error& e) {
      tell(e.exit_code(), e.what());
      // What a device does after a fault of its own cannot be relied on.
      if (e.exit_code() == ExitCode::kNoDevice || e.exit_code() == ExitCode::kInternal) std::_Exit(70);
    } catch (const std::bad_alloc&) {
      tell(ExitCode::kOutOfMemory, "out of memory");
    } catch (const std::exception& e) {
      tell(ExitCode::kInternal, e.what());
    }
  }

  using LoadPairs = std::vector<std::pair<std::string, std::string>>;

  const int socket_;
  std::mutex mutex_, write_mutex_;
  std::condition_variable arrived_;
  std::deque<Frame> orders_;
  std::string id_;
  std::atomic<bool> cancel_{false}, skip_{false}, look_{false};

  LoadOptions load_;
  std::optional<Pipeline> pipeline_;
  std::optional<Upscaler> upscaler_;  // of the last job with one
  std::string upscaler_model_;
  int round_ = 0;
  std::string stage_;
  Clock::time_point told_, alive_, preview_begin_, next_preview_;
};

}  // namespace

int run_worker(int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_IGN);  // of the terminal's process group: the supervisor decides
  signal(SIGTERM, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // a core would hold prompts and pictures
  // Relative names reach nothing: prompts name LoRAs, and those are looked up in the folder alone.
  if (chdir("/") != 0) return static_cast<int>(ExitCode::kInternal);
  return Worker(socket).run();
}

}  // namespace rocm_sd::server
