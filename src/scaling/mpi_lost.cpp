// Which ranks of an MpiHub are lost, as this one sees it, and whether it is itself the one that was.
#include <cmath>

#include "base/error.hpp"
#include "scaling/mpi_hub.hpp"
#include "scaling/process_state.hpp"
#include "scaling/rank_board.hpp"

namespace rocm_sd {
namespace {

// A process's thread tells four times a second that it lives.
constexpr double kProcessSeconds = 6;

}  // namespace

// Once for each time that the post's thread stood still: where it never goes on, waiting is no use.
bool MpiHub::hears_out() const {
  const double now = monotonic_seconds();
  if (last_tick_ > 0 && now - last_tick_ > kStoppedSeconds && excused_ != last_tick_) {
    excused_ = last_tick_;
    wait_until_ = now + kHearOutSeconds;
  }
  constexpr double kJudgeSeconds = 1;  // the post's thread is late, or stuck
  return now < wait_until_ + (judged_ ? 0 : kJudgeSeconds);
}

// After hearing the others out: where all of them have ended while this process stood still, they have given
// it up and drawn its images, and what they said of it is lost.
void MpiHub::judge_standstill() {
  if (judged_) return;
  judged_ = true;
  bool alone = true;
  for (int other = 0; other < count(); ++other) alone &= other == own_ || !why_lost_locked(other).empty();
  if (alone) peer(own_).expelled = true;
}

std::string MpiHub::why_lost(int rank) const {
  const std::lock_guard lock(mutex_);
  return why_lost_locked(rank);
}

std::string MpiHub::why_lost_locked(int rank) const {
  if (rank == own_ || hears_out()) return "";
  return peer(rank).left ? concat(process_of(rank), " has ended before the work was done")
                         : why_unreachable_locked(rank);
}

std::string MpiHub::process_of(int rank) const {
  return concat("its process ", peer(rank).process, " on ", printable(peer(rank).host, 64));
}

std::string MpiHub::why_unreachable_locked(int rank) const {
  if (hears_out()) return "";
  Peer& who = peer(rank);
  const double now = monotonic_seconds();
  const std::string process = process_of(rank);
  if (!who.broken.empty()) return concat(process, " cannot be reached: ", who.broken);
  if (who.visible) {
    const ProcessState state = process_state(who.process);
    if (state == ProcessState::kGone)
      return concat(process, " is gone: killed, or crashed (the kernel's log says which)");
    if (state != ProcessState::kStopped)
      who.stopped_since = 0;
    else if (who.stopped_since == 0)
      who.stopped_since = now;
    else if (now - who.stopped_since > kStoppedSeconds)
      return concat(process, " has been stopped for ", kStoppedSeconds, " s (SIGSTOP, or a debugger)");
  }
  if (now - who.heard > kProcessSeconds && now - last_tick_ < 1)
    return concat(process, " has sent nothing for ", kProcessSeconds,
                  " s: killed, stopped, or its host cannot be reached");
  if (!who.idle && limit(who) > 0 && now - who.silent_until > limit(who))
    return concat("no sign of life for ", limit(who), " s");
  return "";
}

std::string MpiHub::why_useless_locked(int rank) const {
  std::string reason = why_lost_locked(rank);
  return reason.empty() ? post_.problem() : reason;
}

// Whoever stood still for long is the likely cause that others have ended.
void MpiHub::blame(int rank, const std::string& reason) {
  std::string own;
  {
    const std::lock_guard lock(mutex_);
    if (stood_still_ > 0)
      own = concat(process_of(own_), " stood still for ", std::round(stood_still_),
                   " s (SIGSTOP, or a debugger); meanwhile rank ", rank, " (", peer(rank).name,
                   ") was lost: ", reason);
  }
  if (own.empty())
    fail(own_, rank, reason);
  else
    fail(own_, own_, own);
}

void MpiHub::give_up_if_lost(int rank) {
  std::unique_lock lock(mutex_);
  const std::string reason = why_useless_locked(rank);
  lock.unlock();
  if (!reason.empty()) blame(rank, reason);
}

}  // namespace rocm_sd
