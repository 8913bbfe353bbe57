#include "server/worker_supervisor.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

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
      if (process_) look_at_jobs();
      if (process_) watch_time();
    }
    o_.jobs_.set_free(this, false);
    if (process_) write_frame(process_->socket(), R"({"type":"quit"})");
    for (const AtWork& job : at_work_) o_.jobs_.cancelled(job.id);
    process_.reset();
  }

 private:
  // A job that the worker has.
  struct AtWork {
    std::string id;
    int images = 1, rounds = 1;
    std::optional<Clock::time_point> cancel_at;  // the worker was told
    std::string stage;
    int step = 0;
    Clock::time_point step_at{};
    bool leaves = false;  // has had its last step: the next job comes while its images are decoded
  };

  void start() {
    try {
      process_ = std::make_unique<WorkerProcess>();
    } catch (const Error& e) {
      pause(e.what());
      return;
    }
    reader_ = {};
    configured_ = false;
    loading_ = true;
    room_ = std::max(1, o_.options_.draw.join);
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
                       {"threads", o_.options_.threads},
                       {"lora_mode", o_.options_.lora_mode},
                       {"join", o_.options_.draw.join}};
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
    const std::span<char> room = reader_.room();
    const ssize_t got = ::recv(process_->socket(), room.data(), room.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      lost(process_->wait());
      return;
    }
    reader_.took(static_cast<size_t>(got));
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
    if (type == "idle") configured();
    if (type == "limit") room_ = head.at("images");
    if (type == "alone") {  // it waits for the others: nobody joins them any more
      log().info("worker on {}: a job is drawn by itself: {}", o_.device_, head.at("why").get<std::string>());
      key_.clear();
    }
    if (type == "progress") progress(head);
    if (type == "image" && is_at_work(head.at("id"))) {
      o_.jobs_.add_image(head.at("id"), {std::move(bytes), head.at("seed"), head.at("width"),
                                         head.at("height"), head.at("parameters")});
    }
    if (type == "preview" && is_at_work(head.at("id")))
      o_.jobs_.add_preview(head.at("id"), {std::move(bytes), head.at("width"), head.at("height"),
                                           head.at("step"), head.at("total"), head.at("partial")});
    if (type == "done" && end(head.at("id"))) {
      failures_ = 0;
      o_.jobs_.complete(head.at("id"), head.at("warnings"));
    }
    if (type == "failed" && end(head.at("id"))) failed(head.at("id"), head.at("code"), head.at("message"));
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
      s.memory = {head.at("available"), head.at("step_base"), head.at("step_pixel"), head.at("guidance")};
      s.error.clear();
    });
    log().info("worker on {}: {} is loaded", o_.device_, name);
  }

  void configured() {
    configured_ = true;
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
    const auto job = find(head.value("id", ""));
    if (job == at_work_.end()) return;
    // Steps that come fast are told in groups.
    if (stage == "sample" && job->stage == "sample" && step > job->step) {
      const double seconds = std::chrono::duration<double>(Clock::now() - job->step_at).count();
      step_times_.push_back(seconds / (step - job->step));
      if (step_times_.size() > kStepsOfMedian) step_times_.erase(step_times_.begin());
      o_.change([&](WorkerStatus& s) {
        s.steps += static_cast<uint64_t>(step - job->step);
        s.step_seconds += seconds;
      });
    }
    job->stage = stage;
    job->step = step;
    job->step_at = Clock::now();
    job->leaves = head.at("round").get<int>() + 1 >= job->rounds &&
                  (stage == "decode" || (stage == "sample" && step >= head.at("total").get<int>()));
    o_.jobs_.progress(job->id, {stage, step, head.at("total"), head.at("round")});
  }

  std::vector<AtWork>::iterator find(const std::string& id) {
    return std::ranges::find(at_work_, id, &AtWork::id);
  }
  bool is_at_work(const std::string& id) { return find(id) != at_work_.end(); }
  // False: the worker did not have it.
  bool end(const std::string& id) {
    if (std::erase_if(at_work_, [&](const AtWork& job) { return job.id == id; }) == 0) return false;
    if (at_work_.empty()) o_.change([](WorkerStatus& s) { s.state = "idle"; });
    return true;
  }

  void failed(const std::string& id, int code, const std::string& message) {
    if (static_cast<ExitCode>(code) == ExitCode::kCancelled)
      o_.jobs_.cancelled(id);
    else
      o_.jobs_.fail(id, job_error(code, message));
  }

  // The process has ended, or has to. Of several jobs each is tried by itself, so that the one that is the
  // reason ends no other.
  void lost(const std::string& why) {
    process_.reset();
    o_.jobs_.set_free(this, false);
    const std::vector<AtWork> jobs = std::exchange(at_work_, {});
    std::vector<std::string> again;
    for (const AtWork& job : jobs) {
      if (job.cancel_at)
        o_.jobs_.cancelled(job.id);
      else if (jobs.size() > 1)
        again.push_back(job.id);
      else
        o_.jobs_.fail(job.id, {500, "worker_died",
                               concat("the worker on ", o_.device_, " ", why,
                                      "; the job was not run again, others go on")});
    }
    if (!again.empty()) o_.jobs_.separate(again);
    pause(concat("the worker ", why));
  }

  void pause(const std::string& why) {
    const auto length = std::min(kLongestPause, kFirstPause * (1 << std::min(failures_, 6)));
    ++failures_;
    next_start_ = Clock::now() + length;
    configured_ = false;
    o_.change([&](WorkerStatus& s) {
      s.state = "waiting";
      s.error = why;
      s.pid = 0;
      s.model.clear();
      ++s.restarts;
    });
    log().warn("worker on {}: {}; it is started again in {} s", o_.device_, why, length.count() / 1000);
  }

  void look_at_jobs() {
    if (configured_) take_jobs();
    if (!process_) return;
    for (AtWork& job : at_work_) {
      const auto tell = [&](const char* type) {
        write_frame(process_->socket(), json{{"type", type}, {"id", job.id}}.dump());
      };
      if (!job.cancel_at && o_.jobs_.cancel_asked(job.id)) {
        job.cancel_at = Clock::now();
        tell("cancel");
      }
      if (o_.jobs_.take_skip(job.id)) tell("skip");
      if (o_.jobs_.take_look(job.id)) tell("look");
    }
  }

  // The first one that waits for a worker without a job; for others those that may join what it draws.
  void take_jobs() {
    std::vector<Work> works;
    if (at_work_.empty()) {
      std::optional<Work> first = o_.jobs_.take(o_.device_);
      o_.jobs_.set_free(this, !first);
      if (!first) return;
      key_ = first->key;
      works.push_back(std::move(*first));
    }
    int images = 0;
    for (const AtWork& job : at_work_) images += job.leaves ? 0 : job.images;
    for (const Work& work : works) images += work.request->batch;
    if (!key_.empty() && images < room_)
      std::ranges::move(o_.jobs_.take_joining(o_.device_, key_, room_ - images), std::back_inserter(works));
    if (works.empty()) return;
    if (at_work_.empty()) alive();
    std::vector<Order> orders;
    for (const Work& work : works) prepare(work, orders);
    if (!orders.empty()) o_.change([](WorkerStatus& s) { s.state = "busy"; });
    for (const Order& order : orders)
      if (process_ && !write_frame(process_->socket(), order.json, order.bytes)) lost("took no job");
  }

  void prepare(const Work& work, std::vector<Order>& orders) {
    try {
      const std::string model = o_.catalog_.find(work.request->model).path.string();
      orders.push_back(job_order(work, model, o_.options_.preview));
      at_work_.push_back({work.id, work.request->batch, work.request->rounds});
    } catch (const RequestError& e) {  // of a journal whose models were others
      o_.jobs_.fail(work.id, {422, e.error().type, e.error().message});
    }
  }

  void alive() { sign_ = Clock::now(); }

  // When a worker that says nothing counts as stuck.
  Clock::time_point deadline() const {
    if (configured_ && at_work_.empty()) return Clock::time_point::max() - std::chrono::hours(1);
    auto most = loading_ ? o_.options_.load_time : o_.options_.step_time;
    if (!loading_ && !step_times_.empty()) {
      std::vector<double> sorted = step_times_;
      std::ranges::nth_element(sorted, sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2));
      const double median = sorted[sorted.size() / 2];
      most = std::max(most, Milliseconds(static_cast<int64_t>(1000 * kSlowFactor * median)));
    }
    Clock::time_point until = sign_ + most;
    for (const AtWork& job : at_work_)
      if (job.cancel_at) until = std::min(until, *job.cancel_at + kCancelTime);
    return until;
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
  bool configured_ = false, loading_ = true;
  std::string load_refused_;
  std::vector<AtWork> at_work_;  // in the order in which the worker got them
  std::string key_;              // of what they have in common; empty: nobody may join them
  int room_ = 1;                 // images at once
  int failures_ = 0;
  Clock::time_point next_start_{}, sign_{};
  std::vector<double> step_times_;
};

WorkerSupervisor::WorkerSupervisor(std::string device, const ServerOptions& options, Catalog& catalog,
                                   JobStore& jobs)
    : device_(std::move(device)), options_(options), catalog_(catalog), jobs_(jobs) {
  wake_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  require<InternalError>(wake_descriptor_ >= 0, "worker: no event descriptor");
  status_.device = device_;
}

WorkerSupervisor::~WorkerSupervisor() {
  end();
  ::close(wake_descriptor_);
}
void WorkerSupervisor::start() {
  thread_ = std::thread([this] { Loop(*this).run(); });
}
void WorkerSupervisor::end() {
  stop_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
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
