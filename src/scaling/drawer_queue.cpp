#include "scaling/drawer_queue.hpp"

#include <algorithm>
#include <chrono>

#include "base/error.hpp"

namespace rocm_sd {

DrawerQueue::DrawerQueue(const std::vector<std::string>& names) {
  for (const std::string& name : names) drawers_.push_back({.name = name});
}

bool DrawerQueue::any_left() const {
  return std::any_of(drawers_.begin(), drawers_.end(), [](const Drawer& d) { return d.taken_out.empty(); });
}

size_t DrawerQueue::acquire(const std::function<bool()>& asked) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  waiting_.push_back(ticket);
  const auto leave = [&] {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), ticket));
    changed_.notify_all();
  };
  for (;;) {
    if (!any_left()) {
      leave();
      std::string reasons;
      for (const Drawer& drawer : drawers_)
        reasons += concat(reasons.empty() ? "" : "; ", drawer.name, ": ", drawer.taken_out);
      throw DeviceError(drawers_.size() == 1 ? drawers_.front().taken_out
                                             : concat("every device was taken out: ", reasons));
    }
    const auto free = std::find_if(drawers_.begin(), drawers_.end(),
                                   [](const Drawer& d) { return !d.busy && d.taken_out.empty(); });
    if (free != drawers_.end() && waiting_.front() == ticket) {
      free->busy = true;
      leave();
      return static_cast<size_t>(free - drawers_.begin());
    }
    lock.unlock();
    const bool cancelled = asked && asked();
    lock.lock();
    if (cancelled) {
      leave();
      throw CancelledError("cancelled");
    }
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
}

bool DrawerQueue::acquire_this(size_t drawer) {
  std::unique_lock lock(mutex_);
  Drawer& wanted = drawers_[drawer];
  changed_.wait(lock, [&] { return !wanted.busy || !wanted.taken_out.empty(); });
  if (!wanted.taken_out.empty()) return false;
  return wanted.busy = true;
}

void DrawerQueue::release(size_t drawer, bool drawn) {
  const std::lock_guard lock(mutex_);
  drawers_[drawer].busy = false;
  drawers_[drawer].drawn += drawn ? 1 : 0;
  changed_.notify_all();
}

void DrawerQueue::take_out(size_t drawer, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  drawers_[drawer].busy = false;
  drawers_[drawer].taken_out = reason.empty() ? "failed" : reason;
  changed_.notify_all();
}

int64_t DrawerQueue::drawn(size_t drawer) const {
  const std::lock_guard lock(mutex_);
  return drawers_[drawer].drawn;
}

std::string DrawerQueue::taken_out(size_t drawer) const {
  const std::lock_guard lock(mutex_);
  return drawers_[drawer].taken_out;
}

}  // namespace rocm_sd
