#include "models/parallel_upload.hpp"

#include <algorithm>
#include <utility>

#include "runtime/device.hpp"

namespace rocm_sd {
namespace {

// More read no faster than the bus copies.
constexpr int kMaxThreads = 8;

}  // namespace

ParallelUpload::~ParallelUpload() {
  {
    const std::lock_guard lock(mutex_);
    pieces_.clear();
  }
  end_threads();
}

void ParallelUpload::add(char* dst, size_t bytes, std::function<void(char*)> make) {
  const std::lock_guard lock(mutex_);
  if (error_) return;
  pieces_.push_back({dst, bytes, std::move(make)});
  const auto wanted = std::min<size_t>(static_cast<size_t>(std::clamp(host_threads(), 1, kMaxThreads)),
                                       threads_.size() + pieces_.size());
  if (threads_.size() < wanted) threads_.emplace_back([this] { work(); });
  changed_.notify_one();
}

void ParallelUpload::finish() {
  end_threads();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ParallelUpload::end_threads() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  ends_ = false;
}

void ParallelUpload::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !pieces_.empty(); });
    if (pieces_.empty()) return;
    const Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      device_.copy_made(piece.dst, piece.bytes, piece.make);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (!error) continue;
    if (!error_) error_ = error;
    pieces_.clear();
  }
}

}  // namespace rocm_sd
