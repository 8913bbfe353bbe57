#include "apps/cli/picture_writer.hpp"

#include <iterator>
#include <utility>

namespace rocm_sd::cli {
namespace {

constexpr size_t kMaxWaiting = 2;  // batches

}  // namespace

PictureWriter::~PictureWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PictureWriter::rethrow() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void PictureWriter::add(Task task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.size() < kMaxWaiting || failed_; });
  rethrow();
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void PictureWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return (tasks_.empty() && !busy_) || failed_; });
  rethrow();
}

std::vector<std::string> PictureWriter::written() {
  const std::lock_guard lock(mutex_);
  return std::exchange(written_, {});
}

void PictureWriter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !tasks_.empty() || ending_; });
    if (tasks_.empty() || failed_) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    std::vector<std::string> paths;
    std::exception_ptr error;
    try {
      paths = task();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    error_ = error;
    failed_ = error != nullptr;
    written_.insert(written_.end(), std::make_move_iterator(paths.begin()),
                    std::make_move_iterator(paths.end()));
    changed_.notify_all();
  }
}

}  // namespace rocm_sd::cli
