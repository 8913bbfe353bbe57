#include "server/worker_main.hpp"

#include <omp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "pipeline/options.hpp"
#include "pipeline/step_batch.hpp"
#include "rocm_sd/upscale.hpp"
#include "runtime/device.hpp"
#include "runtime/devices.hpp"
#include "server/worker_link.hpp"
#include "server/worker_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using TaskPointer = std::shared_ptr<WorkerTask>;

// On the CPU four are faster than two, and more would hardly be (docs/reference/server.md).
constexpr int kJoinOnHost = 4, kJoinOnGpu = 8;
constexpr double kMaxEnlarged = 8192;  // pixels of a side, by a network's own factor

// What a device does after a fault of its own cannot be relied on.
bool is_fault(ExitCode code) { return code == ExitCode::kNoDevice || code == ExitCode::kInternal; }

class Worker {
 public:
  explicit Worker(int socket) : link_(socket) {}

  // Between two steps of those at work: orders are taken, and jobs join.
  int run() {
    link_.read_orders();
    for (;;) {
      while (auto order = link_.next(waiting_.empty() && at_work_.empty())) {
        if (order->task)
          waiting_.push_back(std::move(order->task));
        else
          configure(json::parse(order->configure));
      }
      drop_cancelled();
      while (!waiting_.empty() && begin(waiting_.front())) waiting_.pop_front();
      if (!at_work_.empty()) step();
    }
  }

 private:
  void configure(const json& head) {
    load_ = LoadOptions();
    OptionTargets targets{&load_, nullptr};
    for (const auto& [name, value] : head.at("load").get<LoadPairs>()) set_option(targets, name, value);
    if (const int threads = head.value("threads", 0); threads > 0) omp_set_num_threads(threads);
    lora_mode_ = head.at("lora_mode");
    most_ = head.at("join");
    if (most_ == 0) most_ = device_named(load_.device).kind() == DeviceKind::kHost ? kJoinOnHost : kJoinOnGpu;
    told_limit_ = most_;
    link_.send({{"type", "limit"}, {"images", most_}});
    try {
      load(head.at("model"), loading());
    } catch (const Error& e) {
      link_.send({{"type", "load_failed"}, {"message", e.what()}});
      if (is_fault(e.exit_code())) std::_Exit(70);
    } catch (const std::exception& e) {
      link_.send({{"type", "load_failed"}, {"message", e.what()}});
    }
    link_.send({{"type", "idle"}});
  }

  Callbacks loading() {
    Callbacks callbacks;
    callbacks.progress = [this](const Progress& p) {
      link_.send(
          {{"type", "progress"}, {"stage", p.stage}, {"step", p.step}, {"total", p.total}, {"round", 0}});
      return true;
    };
    callbacks.cancelled = [this, told = Clock::now()]() mutable {
      if (Clock::now() - told < std::chrono::milliseconds(500)) return false;
      told = Clock::now();
      link_.send({{"type", "alive"}});
      return false;
    };
    return callbacks;
  }

  void load(const std::string& path, const Callbacks& callbacks) {
    if (pipeline_ && path == load_.model) return;
    batch_.reset();
    pipeline_.reset();  // two models may not fit
    upscaler_.reset();
    load_.model = path;
    link_.send({{"type", "loading"}});
    pipeline_.emplace(Pipeline::load(load_, callbacks));
    batch_.emplace(*pipeline_, most_);
    const ModelInfo& info = pipeline_->info();
    const MemoryInfo memory = device_named(load_.device).memory();
    const auto [step_base, step_pixel] = step_memory();
    link_.send({{"type", "loaded"},
                {"available", step_pixel == 0         ? 0
                              : load_.vram_budget > 0 ? load_.vram_budget
                                                      : memory.total},
                {"step_base", step_base},
                {"step_pixel", step_pixel},
                {"guidance", pipeline_->default_request().cfg_scale},
                {"path", path},
                {"memory_total", memory.total},
                {"memory_free", memory.free},
                {"device", info.device},
                {"dtype", info.dtype},
                {"width", info.default_width},
                {"height", info.default_height}});
  }

  // Bytes that a guided step takes at any size and for each pixel: from the plans of a half and a quarter of
  // the model's sides, which no device saves memory for that has room for an image. {0, 0}: not known.
  std::pair<double, double> step_memory() {
    const ModelInfo& info = pipeline_->info();
    double bytes[2], pixels[2];
    try {
      for (const int i : {0, 1}) {
        GenerateRequest request = pipeline_->default_request();
        request.prompt = "a";
        request.cfg_scale = std::max(2.0, request.cfg_scale);
        request.width = info.default_width / (i == 0 ? 4 : 2) / 8 * 8;
        request.height = info.default_height / (i == 0 ? 4 : 2) / 8 * 8;
        pixels[i] = static_cast<double>(request.width) * request.height;
        bytes[i] = static_cast<double>(pipeline_->plan(request).unet);
      }
    } catch (const Error& e) {  // a model that needs an image, or a device without room
      log().debug("no plan of a step: {}", e.what());
      return {0, 0};
    }
    if (!(pixels[1] > pixels[0]) || !(bytes[1] > bytes[0])) return {0, 0};
    const double pixel = (bytes[1] - bytes[0]) / (pixels[1] - pixels[0]);
    return {bytes[0] - pixel * pixels[0], pixel};
  }

  // Those that wait for others to end: who is at work finds out by itself.
  void drop_cancelled() {
    std::erase_if(waiting_, [&](const TaskPointer& task) {
      if (!task->cancel) return false;
      attempt(task, [] { throw CancelledError("cancelled"); });
      return true;
    });
  }

  // True: it is at work, or has ended. False: it waits for those at work.
  bool begin(const TaskPointer& task) {
    const bool others = !at_work_.empty();
    if (others && (task->alone || task->enlarges() || task->model() != load_.model)) return false;
    bool begun = true;
    attempt(task, [&] {
      if (!task->draws()) return enlarge(task);
      read(*task);
      const bool joins =
          most_ > 1 && !task->alone && !task->enlarges() && batch_->refusal(task->request()).empty();
      if (others)
        begun = joins && batch_->fits(task->request());
      else if (!joins)
        draw_alone(task);
      if (joins && begun) add(task);
    });
    return begun;
  }

  void read(WorkerTask& task) {
    if (task.is_read()) return;
    // A bad request ends before another model is loaded for it.
    if (task.model() != load_.model) read_order({}, task.head(), task.bytes());
    load(task.model(), task.callbacks());
    // What the client does not say is what the model asks for: distilled ones few steps without guidance.
    GenerateRequest begin = pipeline_->default_request();
    if (pipeline_->info().proposal.reason.empty())
      begin.steps = std::max(1, static_cast<int>(begin.steps * task.head().at("steps_factor").get<double>()));
    begin.lora_mode = lora_mode_;
    task.read(std::move(begin));
  }

  void add(const TaskPointer& task) {
    batch_->add(++last_number_, task->request(), task->callbacks());
    at_work_[last_number_] = task;
  }

  // One call of the UNet for all that are at work.
  void step() {
    shares_ = at_work_.size() > 1;
    std::vector<TaskPointer> again;
    batch_->step([&](StepBatch::Result result) {
      const TaskPointer task = std::move(at_work_.extract(result.id).mapped());
      attempt(task, [&] {
        if (end_round(task, result)) again.push_back(task);
      });
    });
    shares_ = false;
    for (const TaskPointer& task : again) {
      if (batch_->fits(task->request()))
        add(task);
      else
        waiting_.push_front(task);
    }
    if (const int limit = at_work_.empty() ? most_ : batch_->limit(); limit != told_limit_) {
      told_limit_ = limit;
      link_.send({{"type", "limit"}, {"images", limit}});
    }
  }

  // True: another round follows.
  bool end_round(const TaskPointer& task, StepBatch::Result& result) {
    if (!result.alone.empty()) return draw_later(task, result.alone);
    if (result.drawn) {
      for (Picture& picture : result.drawn->pictures) send_image(task, std::move(picture));
      task->warnings = result.drawn->warnings;
    } else {
      try {
        std::rethrow_exception(result.error);
      } catch (const CancelledError&) {
        if (task->cancel || !task->skip.exchange(false)) throw;  // a skip ends this round alone
      } catch (const GenerationError& e) {                       // of whichever of those that shared a call
        if (!shares_) throw;
        return draw_later(task, e.what());
      }
    }
    if (task->next_round()) return true;
    done(task);
    return false;
  }

  // By itself, as soon as those at work are done. Nobody joins these before.
  bool draw_later(const TaskPointer& task, const std::string& why) {
    task->alone = true;
    waiting_.push_front(task);
    link_.send({{"type", "alone"}, {"id", task->id()}, {"why", why}});
    return false;
  }

  void draw_alone(const TaskPointer& task) {
    const Callbacks watch = task->callbacks();
    do {
      try {
        GenerateResult result = pipeline_->generate(task->request(), watch);
        for (Picture& picture : result.pictures) {
          if (task->enlarges()) picture.image = enlarged(picture.image, *task, watch);
          send_image(task, std::move(picture));
        }
        task->warnings = result.warnings;
      } catch (const CancelledError&) {
        if (task->cancel || !task->skip.exchange(false)) throw;
      }
    } while (task->next_round());
    done(task);
  }

  // Its file is made while the next step is computed.
  void send_image(const TaskPointer& task, Picture picture) {
    link_.later([this, task, picture = std::move(picture)] {
      try {
        task->send_image(picture);
      } catch (const std::bad_alloc&) {
        send_failure(*task, ExitCode::kOutOfMemory, "out of memory");
      } catch (const std::exception& e) {
        send_failure(*task, ExitCode::kInternal, e.what());
      }
    });
  }

  void send_failure(const WorkerTask& task, ExitCode code, const std::string& message) {
    link_.send(
        {{"type", "failed"}, {"id", task.id()}, {"code", static_cast<int>(code)}, {"message", message}});
  }

  Image enlarged(const Image& image, const WorkerTask& task, const Callbacks& watch) {
    const json& how = task.head().at("enlargement");
    const std::string model = how.at("upscaler");
    if (!upscaler_ || upscaler_model_ != model) {
      upscaler_.reset();
      upscaler_.emplace(Upscaler::load({.model = model, .device = load_.device}));
      upscaler_model_ = model;
    }
    const int width = how.at("width"), height = how.at("height");
    double factor = how.at("factor");
    if (width > 0)
      factor = std::max(static_cast<double>(width) / image.width, static_cast<double>(height) / image.height);
    if (factor == 0) {
      factor = upscaler_->info().factor;
      for (const int side : {image.width, image.height})
        require<UsageError>(side * factor <= kMaxEnlarged, "upscale: expected sides of at most ",
                            kMaxEnlarged, " pixels, got ", image.width * factor, " x ",
                            image.height * factor);
    }
    const Image out = upscaler_->upscale(image, {.factor = factor}, watch);
    return width > 0 && how.at("crops").get<bool>() ? middle_of(out, width, height) : out;
  }

  // Each of the job's files, enlarged; their parameters go along.
  void enlarge(const TaskPointer& task) {
    const Callbacks watch = task->callbacks();
    for (const json& file : task->head().at("files")) {
      const MemoryFile held(
          task->bytes().substr(file.at("offset").get<size_t>(), file.at("size").get<size_t>()));
      send_image(task,
                 {enlarged(load_image(held.path()), *task, watch), 0, read_parameters(held.path()), {}});
      ++task->round;
    }
    done(task);
  }

  void done(const TaskPointer& task) {
    link_.forget(task->id());
    link_.later([task] { task->send_done(); });
  }

  // Runs `body`; the job ends with what that throws.
  template <class Body>
  void attempt(const TaskPointer& task, const Body& body) {
    const auto fail = [&](ExitCode code, const char* message) {
      link_.forget(task->id());
      link_.finish_later();  // images of earlier rounds go first, and those of others are not lost
      // Whose fault it was is not known where others are at work: the supervisor tries each by itself.
      if (is_fault(code) && (shares_ || !at_work_.empty())) std::_Exit(70);
      send_failure(*task, code, message);
    };
    try {
      body();
    } catch (const Error& e) {
      fail(e.exit_code(), e.what());
      if (is_fault(e.exit_code())) std::_Exit(70);
    } catch (const std::bad_alloc&) {
      fail(ExitCode::kOutOfMemory, "out of memory");
    } catch (const std::exception& e) {
      fail(ExitCode::kInternal, e.what());
    }
  }

  using LoadPairs = std::vector<std::pair<std::string, std::string>>;

  WorkerLink link_;
  LoadOptions load_;
  std::string lora_mode_;
  int most_ = 1, told_limit_ = 0;  // images that share the UNet's calls
  std::optional<Pipeline> pipeline_;
  std::optional<StepBatch> batch_;    // of the pipeline
  std::optional<Upscaler> upscaler_;  // of the last job with one
  std::string upscaler_model_;
  std::deque<TaskPointer> waiting_;
  std::map<uint64_t, TaskPointer> at_work_;  // by the batch's numbers
  bool shares_ = false;                      // several were in the step whose results are at hand
  uint64_t last_number_ = 0;
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
