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
#include "server/worker_orders.hpp"
#include "server/worker_process.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kFirstPause{1000}, kLongestPause{60'000};
constexpr Milliseconds kCancelTime{30'000};  // from the request to the worker's answer
constexpr int kStepsOfMedian = 63, kSlowFactor = 20;

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
    for (const std::string& id : at_work_) o_.jobs_.cancelled(id);
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
        if (at_work_.empty()) s.state = "loading";
      });
    }
    if (type == "loaded") loaded(head);
    if (type == "load_failed") load_refused_ = head.at("message");
    if (type == "idle") idle();
    if (type == "progress") progress(head);
    if (type == "image" && is_at_work(head.at("id"))) {
      o_.jobs_.add_image(head.at("id"), {std::move(bytes), head.at("seed"), head.at("width"),
                                         head.at("height"), head.at("parameters")});
    }
    if (type == "preview" && is_at_work(head.at("id")))
      o_.jobs_.add_preview(head.at("id"), {std::move(bytes), head.at("width"), head.at("height"),
                                           head.at("step"), head.at("total"), head.at("partial")});
    if (type == "done") {
      failures_ = 0;
      for (const std::string& id : std::exchange(at_work_, {})) o_.jobs_.complete(id, head.at("warnings"));
    }
    if (type == "failed") failed(head.at("code"), head.at("message"));
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
    for (const std::string& id : at_work_)
      o_.jobs_.progress(id, {stage, step, head.at("total"), head.at("round")});
  }

  bool is_at_work(const std::string& id) const { return std::ranges::find(at_work_, id) != at_work_.end(); }

  void failed(int code, const std::string& message) {
    const std::vector<std::string> ids = std::exchange(at_work_, {});
    const bool cancelled = static_cast<ExitCode>(code) == ExitCode::kCancelled;
    if (!cancelled && ids.size() > 1) {  // one of them may be the reason: each is tried by itself
      log().warn("worker on {}: {} jobs could not be drawn together: {}", o_.device_, ids.size(), message);
      o_.jobs_.separate(ids);
      return;
    }
    for (const std::string& id : ids) {
      if (cancelled)
        o_.jobs_.cancelled(id);
      else
        o_.jobs_.fail(id, job_error(code, message));
    }
  }

  // The process has ended, or has to.
  void lost(const std::string& why) {
    process_.reset();
    const std::vector<std::string> ids = std::exchange(at_work_, {});
    if (ids.size() > 1 && !cancel_sent_) {
      o_.jobs_.separate(ids);  // as above
    } else if (ids.size() == 1) {
      if (cancel_sent_)
        o_.jobs_.cancelled(ids[0]);
      else
        o_.jobs_.fail(ids[0], {500, "worker_died",
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
    if (idle_) take_jobs();
    if (!process_ || idle_) return;
    // One of several leaves at once, and its image is dropped; the last one ends the batch.
    for (const std::string& id : std::vector<std::string>(at_work_)) {
      if (cancel_sent_ || !o_.jobs_.cancel_asked(id)) continue;
      if (at_work_.size() > 1) {
        std::erase(at_work_, id);
        o_.jobs_.cancelled(id);
        continue;
      }
      cancel_sent_ = true;
      cancel_at_ = Clock::now();
      write_frame(process_->socket(), json{{"type", "cancel"}, {"id", order_}}.dump());
    }
    for (const std::string& id : at_work_) {
      if (o_.jobs_.take_skip(id)) write_frame(process_->socket(), R"({"type":"skip"})");
      if (o_.jobs_.take_look(id)) write_frame(process_->socket(), R"({"type":"look"})");
    }
  }

  void take_jobs() {
    const std::vector<Work> works = o_.jobs_.take_together(o_.device_, o_.options_.draw.together);
    for (const Work& work : works) at_work_.push_back(work.id);
    if (!works.empty()) give(works);
  }

  void give(const std::vector<Work>& works) {
    order_ = works.front().id;
    idle_ = cancel_sent_ = false;
    stage_.clear();
    alive();
    std::string model;
    try {
      model = o_.catalog_.find(works.front().request->model).path.string();
    } catch (const RequestError& e) {  // of a journal whose models were others
      idle_ = true;
      for (const std::string& id : std::exchange(at_work_, {}))
        o_.jobs_.fail(id, {422, e.error().type, e.error().message});
      return;
    }
    o_.change([](WorkerStatus& s) { s.state = "busy"; });
    const Order order = job_order(works, model, o_.options_.preview);
    if (!write_frame(process_->socket(), order.json, order.bytes)) lost("took no job");
  }

  void alive() { sign_ = Clock::now(); }

  // When a worker that says nothing counts as stuck.
  Clock::time_point deadline() const {
    if (idle_) return Clock::time_point::max() - std::chrono::hours(1);
    if (cancel_sent_ && !at_work_.empty()) return cancel_at_ + kCancelTime;
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
  std::vector<std::string> at_work_;  // ids of the jobs that the worker draws
  std::string order_;                 // the id under which it was given them
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
