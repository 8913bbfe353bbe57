#include "server/worker_link.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

namespace rocm_sd::server {

using nlohmann::json;
namespace {

constexpr size_t kMaxLater = 16;  // images hold memory

}  // namespace

void WorkerLink::send(const json& head, std::string_view bytes) {
  const std::lock_guard lock(write_mutex_);
  const std::string text = head.dump(-1, ' ', false, json::error_handler_t::replace);
  if (!write_frame(socket_, text, bytes)) std::_Exit(0);  // nobody is left to work for
}

void WorkerLink::read_orders() {
  std::thread([this] {
    FrameReader reader;
    for (;;) {
      const std::span<char> room = reader.room();
      const ssize_t got = ::recv(socket_, room.data(), room.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) std::_Exit(0);
      reader.took(static_cast<size_t>(got));
      while (auto frame = reader.next()) take(std::move(*frame));
    }
  }).detach();
  std::thread([this] { work_off(); }).detach();
}

void WorkerLink::later(std::function<void()> work) {
  std::unique_lock lock(later_mutex_);
  later_changed_.wait(lock, [this] { return later_.size() < kMaxLater; });
  later_.push_back(std::move(work));
  later_changed_.notify_all();
}

void WorkerLink::finish_later() {
  std::unique_lock lock(later_mutex_);
  later_changed_.wait(lock, [this] { return later_.empty(); });
}

void WorkerLink::work_off() {
  std::unique_lock lock(later_mutex_);
  for (;;) {
    later_changed_.wait(lock, [this] { return !later_.empty(); });
    const std::function<void()>& work = later_.front();  // stays in its place while others are added
    lock.unlock();
    work();
    lock.lock();
    later_.pop_front();
    later_changed_.notify_all();
  }
}

void WorkerLink::take(Frame frame) {
  const json head = json::parse(frame.json);
  const std::string type = head.at("type");
  if (type == "quit") std::_Exit(0);
  const std::lock_guard lock(mutex_);
  if (type == "configure") {
    orders_.push_back({nullptr, std::move(frame.json)});
  } else if (type == "job") {
    // Known from here on and not only where it is drawn: a cancel that follows at once must find it.
    auto task = std::make_shared<WorkerTask>(*this, head, std::move(frame.bytes));
    tasks_[task->id()] = task;
    orders_.push_back({std::move(task), ""});
  } else {
    const auto found = tasks_.find(head.at("id").get<std::string>());
    if (found == tasks_.end()) return;  // it has ended meanwhile
    if (type == "cancel") found->second->cancel = true;
    if (type == "skip") found->second->skip = true;
    if (type == "look") found->second->look = true;
    return;
  }
  arrived_.notify_one();
}

std::optional<WorkerOrder> WorkerLink::next(bool waits) {
  std::unique_lock lock(mutex_);
  if (waits) arrived_.wait(lock, [this] { return !orders_.empty(); });
  if (orders_.empty()) return std::nullopt;
  WorkerOrder order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

void WorkerLink::forget(const std::string& id) {
  const std::lock_guard lock(mutex_);
  tasks_.erase(id);
}

}  // namespace rocm_sd::server
