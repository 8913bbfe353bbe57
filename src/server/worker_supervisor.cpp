#include "server/worker_supervisor.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/log.hpp"
#include "server/frame.hpp"
#include "server/http.hpp"
#include "server/worker_process.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kFirstPause{1000}, kLongestPause{60'000};
constexpr Milliseconds kCancelTime{30'000};  // from the request to the worker's answer
constexpr int kStepsOfMedian = 63, kSlowFactor = 20;

JobError job_error(int code, const std::string& message) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kUsage: return {422, "invalid_request", message};
    case ExitCode::kFile: return {422, "invalid_file", message};
    case ExitCode::kOutOfMemory: return {422, "out_of_memory", message};
    case ExitCode::kNoDevice: return {503, "gpu_fault", message};
    default: return {500, "generation_failed", message};
  }
}

}  // namespace

// What the thread does, and what it knows of the present process.
class WorkerSupervisor::Loop {
 public:
  explicit Loop(WorkerSupervisor& owner) : o_(owner) {}

  void run() {
    while (!o_.stop_) {
      if (!process_ && Clock::now() >= next_start_) start();
      wait();
      if (process_) look_at_job();
      if (process_) watch_time();
    }
    if (process_) write_frame(process_->socket(), R"({"type":"quit"})");
    if (job_) o_.jobs_.cancelled(job_->id);
    process_.reset();
  }

 private:
  void start() {
    try {
      process_ = std::make_unique<WorkerProcess>();
    } catch (const Error& e) {
      pause(e.what());
      return;
    }
    reader_ = {};
    idle_ = false;
    loading_ = true;
    load_refused_.clear();
    alive();
    const ModelEntry model = o_.catalog_.current();
    LoadPairs load = o_.options_.load;
    load.emplace_back("device", o_.device_);
    if (!o_.catalog_.lora_folder().empty()) load.emplace_back("lora-dir", o_.catalog_.lora_folder());
    if (!o_.options_.embedding_folder.empty())
      load.emplace_back("embedding-dir", std::filesystem::canonical(o_.options_.embedding_folder).string());
    o_.change([&](WorkerStatus& s) {
      s.state = "starting";
      s.pid = process_->pid();
      s.model.clear();
    });
    const json head = {{"type", "configure"},
                       {"load", load},
                       {"model", model.path.string()},
                       {"threads", o_.options_.threads}};
    if (!write_frame(process_->socket(), head.dump())) lost("took no orders");
  }

  void wait() {
    const auto until = process_ ? deadline() : next_start_;
    const auto left = std::chrono::duration_cast<Milliseconds>(until - Clock::now()).count() + 1;
    pollfd descriptors[2] = {{o_.wake_descriptor_, POLLIN, 0},
                             {process_ ? process_->socket() : -1, POLLIN, 0}};
    poll(descriptors, 2, static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
    uint64_t count = 0;
    while (::read(o_.wake_descriptor_, &count, sizeof(count)) > 0) {
    }
    if (process_ && descriptors[1].revents != 0) receive();
  }

  void receive() {
    std::string piece(1 << 18, '\0');
    const ssize_t got = ::recv(process_->socket(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      lost(process_->wait());
      return;
    }
    reader_.append(std::string_view(piece).substr(0, static_cast<size_t>(got)));
    try {
      while (process_) {
        auto frame = reader_.next();
        if (!frame) return;
        take(json::parse(frame->json), std::move(frame->bytes));
      }
    } catch (const std::exception& e) {
      lost(concat("sent what nobody understands: ", e.what()));
    }
  }

  void take(const json& head, std::string bytes) {
    const std::string type = head.at("type");
    alive();
    if (type == "loading") {
      loading_ = true;
      o_.change([&](WorkerStatus& s) {
        s.model.clear();  // the one that was in memory makes room
        if (!job_) s.state = "loading";
      });
    }
    if (type == "loaded") loaded(head);
    if (type == "load_failed") load_refused_ = head.at("message");
    if (type == "idle") idle();
    if (type == "progress" && job_) progress(head);
    if (type == "image" && job_) {
      o_.jobs_.add_image(job_->id, {std::move(bytes), head.at("seed"), head.at("width"), head.at("height"),
                                    head.at("parameters")});
    }
    if (type == "preview" && job_)
      o_.jobs_.add_preview(job_->id, {std::move(bytes), head.at("width"), head.at("height"), head.at("step"),
                                      head.at("total"), head.at("partial")});
    if (type == "done" && job_) {
      failures_ = 0;
      o_.jobs_.complete(std::exchange(job_, std::nullopt)->id, head.at("warnings"));
    }
    if (type == "failed" && job_) failed(head.at("code"), head.at("message"));
  }

  void loaded(const json& head) {
    loading_ = false;
    std::string name;
    for (const ModelEntry& model : o_.catalog_.models())
      if (model.path == head.at("path").get<std::string>()) name = model.name;
    o_.catalog_.set_default_size(name, head.at("width"), head.at("height"));
    o_.change([&](WorkerStatus& s) {
      s.model = name;
      s.device_name = concat(head.at("device").get<std::string>(), ", ", head.at("dtype").get<std::string>());
      s.memory_total = head.at("memory_total");
      s.memory_free = head.at("memory_free");
      s.error.clear();
    });
    log().info("worker on {}: {} is loaded", o_.device_, name);
  }

  void idle() {
    idle_ = true;
    loading_ = false;
    // A model that cannot be loaded is no reason to start again: another one may be asked for.
    o_.change([&](WorkerStatus& s) {
      s.state = "idle";
      if (!load_refused_.empty()) s.error = load_refused_;
    });
    if (!load_refused_.empty()) log().warn("worker on {}: {}", o_.device_, load_refused_);
    load_refused_.clear();
  }

  void progress(const json& head) {
    const std::string stage = head.at("stage");
    const int step = head.at("step");
    loading_ = stage == "load";
    // Steps that come fast are told in groups.
    if (stage == "sample" && stage_ == "sample" && step > step_) {
      const double seconds = std::chrono::duration<double>(Clock::now() - step_at_).count();
      step_times_.push_back(seconds / (step - step_));
      if (step_times_.size() > kStepsOfMedian) step_times_.erase(step_times_.begin());
      o_.change([&](WorkerStatus& s) {
        s.steps += static_cast<uint64_t>(step - step_);
        s.step_seconds += seconds;
      });
    }
    stage_ = stage;
    step_ = step;
    step_at_ = Clock::now();
    o_.jobs_.progress(job_->id, {stage, step, head.at("total"), head.at("round")});
  }

  void failed(int code, const std::string& message) {
    const std::string id = std::exchange(job_, std::nullopt)->id;
    if (static_cast<ExitCode>(code) == ExitCode::kCancelled)
      o_.jobs_.cancelled(id);
    else
      o_.jobs_.fail(id, job_error(code, message));
  }

  // The process has ended, or has to.
  void lost(const std::string& why) {
    process_.reset();
    if (job_) {
      const std::string id = std::exchange(job_, std::nullopt)->id;
      if (cancel_sent_)
        o_.jobs_.cancelled(id);
      else
        o_.jobs_.fail(id, {500, "worker_died",
                           concat("the worker on ", o_.device_, " ", why,
                                  "; the job was not run again, others go on")});
    }
    pause(concat("the worker ", why));
  }

  void pause(const std::string& why) {
    const auto length = std::min(kLongestPause, kFirstPause * (1 << std::min(failures_, 6)));
    ++failures_;
    next_start_ = Clock::now() + length;
    idle_ = false;
    o_.change([&](WorkerStatus& s) {
      s.state = "waiting";
      s.error = why;
      s.pid = 0;
      s.model.clear();
      ++s.restarts;
    });
    log().warn("worker on {}: {}; it is started again in {} s", o_.device_, why, length.count() / 1000);
  }

  void look_at_job() {
    if (idle_ && !job_ && (job_ = o_.jobs_.take(o_.device_))) give();
    if (job_ && process_) {
      if (!cancel_sent_ && o_.jobs_.cancel_asked(job_->id)) {
        cancel_sent_ = true;
        cancel_at_ = Clock::now();
        write_frame(process_->socket(), json{{"type", "cancel"}, {"id", job_->id}}.dump());
      }
      if (o_.jobs_.take_skip(job_->id)) write_frame(process_->socket(), R"({"type":"skip"})");
      if (o_.jobs_.take_look(job_->id)) write_frame(process_->socket(), R"({"type":"look"})");
    }
  }

  void give() {
    idle_ = cancel_sent_ = false;
    stage_.clear();
    alive();
    o_.change([](WorkerStatus& s) { s.state = "busy"; });
    const JobRequest& r = *job_->request;
    std::string model;
    try {
      model = o_.catalog_.find(r.model).path.string();
    } catch (const RequestError& e) {  // of a journal whose models were others
      idle_ = true;
      o_.jobs_.fail(std::exchange(job_, std::nullopt)->id, {422, e.error().type, e.error().message});
      return;
    }
    json files = json::array();
    std::string bytes;
    for (const Attachment& file : r.files) {
      files.push_back({{"option", file.option},
                       {"offset", bytes.size()},
                       {"size", file.bytes.size()},
                       {"joins", file.joins}});
      bytes += file.bytes;
    }
    const json head = {{"type", "job"},
                       {"id", job_->id},
                       {"options", r.options},
                       {"files", files},
                       {"rounds", r.rounds},
                       {"format", r.format},
                       {"quality", r.quality},
                       {"metadata", r.metadata},
                       {"invert_mask", r.inverts_mask},
                       {"preview", o_.options_.preview},
                       {"partials", r.partials},
                       {"model", model}};
    job_->request.reset();
    if (!write_frame(process_->socket(), head.dump(), bytes)) lost("took no job");
  }

  void alive() { sign_ = Clock::now(); }

  // When a worker that says nothing counts as stuck.
  Clock::time_point deadline() const {
    if (idle_ && !job_) return Clock::time_point::max() - std::chrono::hours(1);
    if (cancel_sent_ && job_) return cancel_at_ + kCancelTime;
    auto most = loading_ ? o_.options_.load_time : o_.options_.step_time;
    if (!loading_ && !step_times_.empty()) {
      std::vector<double> sorted = step_times_;
      std::ranges::nth_element(sorted, sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2));
      const double median = sorted[sorted.size() / 2];
      most = std::max(most, Milliseconds(static_cast<int64_t>(1000 * kSlowFactor * median)));
    }
    return sign_ + most;
  }

  void watch_time() {
    if (Clock::now() < deadline()) return;
    const auto silent = std::chrono::duration<double>(Clock::now() - sign_).count();
    process_->kill();
    lost(concat("was stopped, because it gave no sign of life for ", static_cast<int>(silent), " s"));
  }

  WorkerSupervisor& o_;
  std::unique_ptr<WorkerProcess> process_;
  FrameReader reader_;
  bool idle_ = false, loading_ = true, cancel_sent_ = false;
  std::string load_refused_;
  std::optional<Work> job_;
  int failures_ = 0;
  Clock::time_point next_start_{}, sign_{}, cancel_at_{}, step_at_{};
  std::string stage_;
  int step_ = 0;
  std::vector<double> step_times_;
};

WorkerSupervisor::WorkerSupervisor(std::string device, const ServerOptions& options, Catalog& catalog,
                                   JobStore& jobs)
    : device_(std::move(device)), options_(options), catalog_(catalog), jobs_(jobs) {
  wake_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  require<InternalError>(wake_descriptor_ >= 0, "worker: no event descriptor");
  status_.device = device_;
  thread_ = std::thread([this] { Loop(*this).run(); });
}

WorkerSupervisor::~WorkerSupervisor() {
  stop_ = true;
  wake();
  thread_.join();
  ::close(wake_descriptor_);
}

void WorkerSupervisor::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(wake_descriptor_, &one, sizeof(one));
}

void WorkerSupervisor::change(const std::function<void(WorkerStatus&)>& how) {
  const std::lock_guard lock(mutex_);
  how(status_);
}

WorkerStatus WorkerSupervisor::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool WorkerSupervisor::ready() const {
  const WorkerStatus now = status();
  return !now.model.empty() && (now.state == "idle" || now.state == "busy");
}

}  // namespace rocm_sd::server
