#include "scaling/in_order.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

namespace rocm_sd {
namespace {

class InOrder {
 public:
  InOrder(size_t threads, const MultiPipeline::RequestAt& request, const DrawOne& draw,
          const Callbacks& callbacks)
      : window_(3 * threads), request_(request), draw_(draw), callbacks_(callbacks) {
    for (size_t i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  // Requests that are being drawn are cancelled.
  ~InOrder() {
    {
      const std::lock_guard lock(mutex_);
      end_ = std::min(end_, taken_);
      changed_.notify_all();
    }
    for (std::thread& worker : workers_) worker.join();
  }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

  // Waits for the next result; nothing where there is none. Throws what its request threw.
  std::optional<GenerateResult> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return taken_ >= end_ || finished_.contains(taken_); });
    if (const auto found = finished_.find(taken_); found != finished_.end()) {
      const Finished done = std::move(found->second);
      finished_.erase(found);
      if (done.error) std::rethrow_exception(done.error);
      ++taken_;
      changed_.notify_all();
      return std::move(done.result);
    }
    return std::nullopt;
  }

 private:
  struct Finished {
    GenerateResult result;
    std::exception_ptr error;
  };

  // The next request and its number. Those behind one that failed are not begun.
  std::optional<std::pair<size_t, GenerateRequest>> begin() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return begun_ >= end_ || begun_ < taken_ + window_; });
    if (begun_ >= end_) return std::nullopt;
    try {
      std::optional<GenerateRequest> request = request_(begun_);
      if (request) return std::pair(begun_++, std::move(*request));
      end_ = begun_;
    } catch (...) {
      finished_[begun_].error = std::current_exception();
      end_ = ++begun_;
    }
    changed_.notify_all();
    return std::nullopt;
  }

  void end(size_t index, Finished finished) {
    const std::lock_guard lock(mutex_);
    if (finished.error) end_ = std::min(end_, index + 1);
    finished_[index] = std::move(finished);
    changed_.notify_all();
  }

  void work() {
    while (auto next = begin()) {
      const auto& [index, request] = *next;
      Finished finished;
      try {
        finished.result = draw_(request, watch(index));
      } catch (...) {
        finished.error = std::current_exception();
      }
      end(index, std::move(finished));
    }
  }

  Callbacks watch(size_t index) {
    Callbacks out;
    out.cancelled = [this, index] {
      {
        const std::lock_guard lock(mutex_);
        if (index >= end_) return true;  // an earlier one failed
      }
      if (!callbacks_.cancelled) return false;
      const std::lock_guard lock(calling_);
      return callbacks_.cancelled();
    };
    if (callbacks_.progress)
      out.progress = [this](const Progress& p) {
        const std::lock_guard lock(calling_);
        return callbacks_.progress(p);
      };
    if (callbacks_.planned)
      out.planned = [this](const MemoryPlan& plan) {
        const std::lock_guard lock(calling_);
        callbacks_.planned(plan);
      };
    return out;
  }

  const size_t window_;
  const MultiPipeline::RequestAt& request_;
  const DrawOne& draw_;
  const Callbacks& callbacks_;
  std::mutex mutex_, calling_;
  std::condition_variable changed_;
  size_t begun_ = 0, taken_ = 0, end_ = std::numeric_limits<size_t>::max();
  std::map<size_t, Finished> finished_;
  std::vector<std::thread> workers_;
};

}  // namespace

void draw_in_order(size_t threads, const MultiPipeline::RequestAt& request, const DrawOne& draw,
                   const MultiPipeline::ResultTaker& take, const Callbacks& callbacks) {
  InOrder results(threads, request, draw, callbacks);
  for (size_t i = 0;; ++i) {
    std::optional<GenerateResult> result = results.next();
    if (!result) return;
    take(i, std::move(*result));
  }
}

}  // namespace rocm_sd
