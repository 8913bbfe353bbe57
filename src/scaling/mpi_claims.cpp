#include "scaling/mpi_claims.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"
#include "scaling/mpi_hub.hpp"
#include "scaling/mpi_parcels.hpp"
#include "scaling/rank_board.hpp"

namespace rocm_sd {

using Kind = ParcelKind;

std::unique_ptr<Claims> MpiHub::claims(int rank) {
  return std::make_unique<MpiClaims>(
      rank, [this](size_t request, uint8_t from, uint8_t to) { return ask(request, from, to); },
      [this](size_t request) {
        const std::lock_guard lock(mutex_);
        return table_.state(request);
      });
}

int MpiHub::leader() const {
  for (int rank = 0; rank < count(); ++rank)
    if (!peer(rank).expelled) return rank;
  return own_;
}

void MpiHub::expel(int rank) {
  Parcel told = parcel_of(Kind::kExpel);
  told.head.numbers[0] = rank;
  tell_all(told);
  const std::lock_guard lock(mutex_);
  expel_locked(rank);
}

bool MpiHub::expelled(int rank) const {
  const std::lock_guard lock(mutex_);
  return peer(rank).expelled;
}

// A new leader may have missed what the last one told some, and some what it told the new one.
void MpiHub::expel_locked(int rank) {
  const int before = leader();
  peer(rank).expelled = true;
  changed_.notify_all();
  if (leader() == before) return;
  std::string states;
  for (size_t i = 0; i < table_.size(); ++i) states.push_back(static_cast<char>(table_.state(i)));
  const Parcel table = parcel_of(Kind::kTable, states);
  if (leader() == own_)
    tell_all(table);
  else
    post_.send(leader(), Parcel(table));
}

// By the leader.
bool MpiHub::change_claim(size_t request, uint8_t from, uint8_t to) {
  if (request >= kMaxClaims || !table_.pass(request, from, to)) return false;
  Parcel told = parcel_of(Kind::kClaim);
  told.head.numbers[0] = static_cast<int64_t>(request);
  told.head.numbers[1] = to;
  tell_all(told);
  return true;
}

void MpiHub::answer(int to, const ParcelHead& question) {
  Parcel told = parcel_of(Kind::kAnswer);
  told.head.numbers[0] = question.numbers[3];
  told.head.numbers[1] =
      !peer(to).expelled && leader() == own_ &&
      change_claim(static_cast<size_t>(question.numbers[0]), static_cast<uint8_t>(question.numbers[1]),
                   static_cast<uint8_t>(question.numbers[2]));
  post_.send(to, std::move(told));
}

// What is done stays done; where nobody knows of an owner, the sender may; and the sender knows best how far
// it is itself.
void MpiHub::merge_table(int from, const std::vector<char>& states) {
  for (size_t i = 0; i < std::min(states.size(), kMaxClaims); ++i) {
    const auto theirs = static_cast<uint8_t>(states[i]);
    const uint8_t mine = table_.state(i);
    const bool handing_over = mine == from + 1 && theirs == from + 1 + kMaxRanks;
    if (theirs == mine || !(theirs == kClaimDone || mine == 0 || handing_over)) continue;
    if (leader() == own_)
      change_claim(i, mine, theirs);
    else
      table_.set(i, theirs);
  }
}

void MpiHub::take_claim_parcel(int from, const Parcel& parcel) {
  const ParcelHead& head = parcel.head;
  const auto request = static_cast<size_t>(head.numbers[0]);
  switch (static_cast<Kind>(head.kind)) {
    case Kind::kExpel:
      if (request < peers_.size()) expel_locked(static_cast<int>(request));
      break;
    case Kind::kAsk:
      if (hears_out())
        deferred_.emplace_back(from, head);
      else
        answer(from, head);
      break;
    case Kind::kAnswer:
      answered_ = static_cast<uint64_t>(head.numbers[0]);
      answer_ = head.numbers[1] != 0;
      break;
    case Kind::kClaim:
      if (request < kMaxClaims) table_.set(request, static_cast<uint8_t>(head.numbers[1]));
      break;
    case Kind::kTable: merge_table(from, parcel.body); break;
    default: note_failure({from, false, concat("it sent a parcel of kind ", head.kind)});
  }
}

bool MpiHub::ask(size_t request, uint8_t from, uint8_t to) {
  std::unique_lock lock(mutex_);
  const auto until_heard = [&] { return !hears_out(); };
  while (!until_heard()) changed_.wait_for(lock, std::chrono::milliseconds(50));
  int asked = -1;
  for (;;) {
    if (peer(own_).expelled) return false;
    if (failure_.rank >= 0) throw_failure_locked();
    // What is done stays done and what is taken has an owner for good: the copy of the table may be old, but
    // it is right about these, and who decides may have ended, for all is done.
    const uint8_t known = table_.state(request);
    if (known == kClaimDone || (from == 0 && known != 0)) return known == to;
    const int who = leader();
    if (who == own_) return change_claim(request, from, to);
    if (who != asked) {
      Parcel question = parcel_of(Kind::kAsk);
      question.head.numbers[0] = static_cast<int64_t>(request);
      question.head.numbers[1] = from;
      question.head.numbers[2] = to;
      question.head.numbers[3] = static_cast<int64_t>(++question_);
      post_.send(who, std::move(question));
      asked = who;
    }
    peer(own_).silent_until = monotonic_seconds();
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    if (answered_ == question_ && leader() == asked) return answer_;
    const std::string reason = why_lost_locked(asked);
    if (reason.empty() || leader() != asked) continue;
    log().warn("rank {} ({}) is lost: {}; the others draw its images", asked, peer(asked).name, reason);
    Parcel told = parcel_of(Kind::kExpel);
    told.head.numbers[0] = asked;
    tell_all(told);
    expel_locked(asked);
  }
}

}  // namespace rocm_sd
