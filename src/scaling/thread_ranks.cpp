#include "scaling/thread_ranks.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace rocm_sd {

RankHub::RankHub(std::vector<std::string> names, RankPatience patience)
    : names_(std::move(names)),
      patience_(patience),
      boxes_(names_.size() * names_.size()),
      attempts_(names_.size(), 0),
      has_sent_(names_.size(), 0),
      beats_(names_.size()) {
  reset();
}

double RankHub::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::deque<RankHub::Message>& RankHub::box(int from, int to) {
  return boxes_[static_cast<size_t>(from) * names_.size() + static_cast<size_t>(to)];
}

void RankHub::reset() {
  const std::lock_guard lock(mutex_);
  for (auto& messages : boxes_) messages.clear();
  std::fill(attempts_.begin(), attempts_.end(), 0);
  std::fill(has_sent_.begin(), has_sent_.end(), 0);
  failed_ = cancelled_ = false;
  failure_.clear();
  for (int rank = 0; rank < count(); ++rank) beat(rank);
}

double RankHub::limit(int rank) const {
  return has_sent_[static_cast<size_t>(rank)] ? patience_.later : patience_.first;
}

bool RankHub::is_silent(int rank) const {
  return limit(rank) > 0 && now() - beats_[static_cast<size_t>(rank)] > limit(rank);
}

bool RankHub::silent(int rank) const {
  const std::lock_guard lock(mutex_);
  return is_silent(rank);
}

bool RankHub::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void RankHub::fail(int rank, const std::string& reason, bool cancelled) {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  failed_rank_ = rank;
  failure_ = concat("rank ", rank, " (", name(rank), "): ", reason);
  cancelled_ = cancelled;
  failed_ = true;
  changed_.notify_all();
}

std::optional<int> RankHub::failed_rank() const {
  const std::lock_guard lock(mutex_);
  return failed_ ? std::optional(failed_rank_) : std::nullopt;
}

std::string RankHub::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void RankHub::throw_failure() const {
  require<CancelledError>(!cancelled_, "cancelled");
  throw DeviceError(failure_);
}

void RankHub::begin(int rank) {
  const std::lock_guard lock(mutex_);
  if (failed_) throw_failure();
  uint64_t& own = attempts_[static_cast<size_t>(rank)];
  own = std::max(own + 1, *std::max_element(attempts_.begin(), attempts_.end()));
  has_sent_[static_cast<size_t>(rank)] = 0;
  beat(rank);
  changed_.notify_all();  // those who wait for this rank's message of an earlier attempt
}

void RankHub::send(int from, int to, const void* data, size_t bytes) {
  const auto* first = static_cast<const char*>(data);
  const std::lock_guard lock(mutex_);
  if (failed_) throw_failure();
  box(from, to).push_back({attempts_[static_cast<size_t>(from)], {first, first + bytes}});
  has_sent_[static_cast<size_t>(from)] = 1;
  beat(from);
  changed_.notify_all();
}

void RankHub::receive(int from, int to, void* data, size_t bytes) {
  std::unique_lock lock(mutex_);
  const auto sender = static_cast<size_t>(from);
  std::deque<Message>& messages = box(from, to);
  for (;;) {
    if (failed_) throw_failure();
    const uint64_t own = attempts_[static_cast<size_t>(to)];
    while (!messages.empty() && messages.front().attempt < own) messages.pop_front();
    if (attempts_[sender] > own) throw AttemptOver{};
    if (!messages.empty()) break;
    beat(to);  // it waits, which is not its fault
    if (is_silent(from)) {
      const double seconds = limit(from);
      lock.unlock();
      fail(from, concat("no sign of life for ", seconds, " s"));
      lock.lock();
      continue;
    }
    changed_.wait_for(lock, std::chrono::milliseconds(100));
  }
  const Message message = std::move(messages.front());
  messages.pop_front();
  require<InternalError>(message.bytes.size() == bytes, "rank ", from, " (", name(from), ") sent ",
                         message.bytes.size(), " bytes, rank ", to, " expected ", bytes);
  std::memcpy(data, message.bytes.data(), bytes);
}

}  // namespace rocm_sd
