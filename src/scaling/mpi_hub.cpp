#include "scaling/mpi_hub.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"
#include "base/log.hpp"
#include "scaling/mpi_parcels.hpp"
#include "scaling/process_state.hpp"
#include "scaling/rank_board.hpp"

namespace rocm_sd {
namespace {

using Kind = ParcelKind;

constexpr int64_t kVersion = 0x6d70693032;  // rises with what travels
constexpr double kEndSeconds = 5;           // for the others to end after a failure
constexpr size_t kMaxUnderWay = size_t{256} << 20, kMaxStatesUnderWay = size_t{1} << 20;

std::string host_name() {
  std::array<char, 256> text{};
  return ::gethostname(text.data(), text.size() - 1) == 0 ? text.data() : "";
}

double or_for_ever(double seconds) { return seconds > 0 ? seconds : 1e9; }

}  // namespace

MpiHub::MpiHub(int rank, int count, const std::string& name, RankPatience patience)
    : own_(rank),
      patience_(patience),
      peers_(static_cast<size_t>(count)),
      post_(rank, count, or_for_ever(patience.first)) {
  Peer& own = peer(own_);
  own.name = name;
  own.joined = true;
  own.silent_until = monotonic_seconds();
  post_.start({.taken = [this](int from, Parcel&& parcel) { taken(from, std::move(parcel)); },
               .broken =
                   [this](int other, const std::string& reason) {
                     const std::lock_guard lock(mutex_);
                     peer(other).broken = reason;
                     changed_.notify_all();
                   },
               .tick = [this](double seconds) { tick(seconds); }});
  Parcel hello = parcel_of(Kind::kHello, concat(name, "\n", host_name()));
  hello.head.numbers[0] = kVersion;
  hello.head.numbers[1] = ::getpid();
  tell_all(hello);
  std::unique_lock lock(mutex_);
  for (int other = 0; other < count; ++other)
    require<DeviceError>(changed_.wait_for(lock, std::chrono::duration<double>(or_for_ever(patience.first)),
                                           [&] { return peer(other).joined || failure_.rank >= 0; }),
                         "ranks: rank ", other, " of ", count, " has not come within ", patience.first,
                         " s (MPI)");
  if (failure_.rank >= 0) throw_failure_locked();
}

MpiHub::~MpiHub() {
  if (failed() && !cancelled()) log().warn("ranks: {}", failure());
  tell_all(parcel_of(Kind::kLeave));
  std::unique_lock lock(mutex_);
  const double until = monotonic_seconds() + kEndSeconds;
  // Ready: it ends, and knows that all others do. Whoever has left may have gone without waiting for this
  // rank, and MPI_Finalize would then wait for it.
  bool all_ready = wait_for_others(lock, &Peer::left, until);
  if (all_ready) {
    tell_all(parcel_of(Kind::kReady));
    all_ready = wait_for_others(lock, &Peer::ready, until);
  }
  post_.finish(all_ready && post_.problem().empty());
}

// Whether all others come so far. Those that are lost are not waited for, and after a failure nobody is for
// longer than `until`.
bool MpiHub::wait_for_others(std::unique_lock<std::mutex>& lock, bool Peer::* far, double until) {
  for (;;) {
    bool all = true, waits = false;
    for (int other = 0; other < count(); ++other) {
      if (other == own_ || peer(other).*far) continue;
      all = false;
      waits |= !peer(other).expelled && why_unreachable_locked(other).empty();
    }
    if (!waits || (failure_.rank >= 0 && monotonic_seconds() > until)) return all;
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
}

std::string MpiHub::name(int rank) const {
  const std::lock_guard lock(mutex_);
  return peer(rank).name;
}

void MpiHub::tell_all(const Parcel& parcel) {
  for (int other = 0; other < count(); ++other)
    if (other != own_) post_.send(other, Parcel(parcel));
}

void MpiHub::tell_own_state() {
  Parcel state = parcel_of(Kind::kState);
  {
    const std::lock_guard lock(mutex_);
    const Peer& own = peer(own_);
    state.head.attempt = own.attempt;
    state.head.numbers[0] = static_cast<int64_t>((monotonic_seconds() - own.silent_until) * 1e3);
    state.head.numbers[1] = own.idle;
    state.head.numbers[2] = own.has_sent;
  }
  for (int other = 0; other < count(); ++other)
    if (other != own_ && post_.under_way(other) < kMaxStatesUnderWay) post_.send(other, Parcel(state));
}

// In the post's thread, as taken().
void MpiHub::tick(double seconds) {
  {
    const std::lock_guard lock(mutex_);
    last_tick_ = monotonic_seconds();
    if (seconds > kStoppedSeconds) {  // nobody else was silent meanwhile
      wait_until_ = last_tick_ + kHearOutSeconds;
      stood_still_ = seconds;
      judged_ = false;
      for (Peer& other : peers_) other.heard = std::max(other.heard, last_tick_);
    }
    if (last_tick_ >= wait_until_) {
      judge_standstill();
      for (const auto& [from, question] : deferred_) answer(from, question);
      deferred_.clear();
    }
    changed_.notify_all();
  }
  tell_own_state();
}

void MpiHub::meet(int from, const ParcelHead& head, const std::string& text) {
  Peer& who = peer(from);
  const size_t line = text.find('\n');
  who.name = text.substr(0, line);
  who.host = line == std::string::npos ? "" : text.substr(line + 1);
  who.process = static_cast<int>(head.numbers[1]);
  who.visible = who.host == host_name() && process_state(who.process) != ProcessState::kGone;
  who.joined = true;
  if (head.numbers[0] != kVersion) note_failure({from, false, "it runs another version of the program"});
}

void MpiHub::taken(int from, Parcel&& parcel) {
  const std::lock_guard lock(mutex_);
  const ParcelHead& head = parcel.head;
  const auto kind = static_cast<Kind>(head.kind);
  const std::string text(kind == Kind::kData ? std::string()
                                             : std::string(parcel.body.begin(), parcel.body.end()));
  Peer& who = peer(from);
  who.heard = monotonic_seconds();
  if (judged_) stood_still_ = 0;
  who.attempt = std::max(who.attempt, head.attempt);
  if (kind == Kind::kHello || kind == Kind::kAttempt || kind == Kind::kData) who.silent_until = who.heard;
  switch (kind) {
    case Kind::kHello: meet(from, head, text); break;
    case Kind::kState:
      who.silent_until = who.heard - static_cast<double>(head.numbers[0]) / 1e3;
      who.idle = head.numbers[1] != 0;
      who.has_sent = head.numbers[2] != 0;
      break;
    case Kind::kAttempt: who.has_sent = false; break;
    case Kind::kData:
      who.has_sent = true;
      who.inbox.push_back(std::move(parcel));
      break;
    case Kind::kFailure: note_failure({static_cast<int>(head.numbers[0]), head.numbers[1] != 0, text}); break;
    case Kind::kLeave: who.left = true; break;
    case Kind::kReady: who.ready = true; break;
    default: take_claim_parcel(from, parcel);
  }
  changed_.notify_all();
}

void MpiHub::begin_call(int rank) {
  const std::lock_guard lock(mutex_);
  if (failure_.rank >= 0) throw_failure_locked();
  began_ = false;
  peer(rank).idle = false;
  peer(rank).silent_until = monotonic_seconds();
}

void MpiHub::end_call(int rank) {
  const std::lock_guard lock(mutex_);
  peer(rank).idle = true;
}

void MpiHub::beat(int rank) {
  const std::lock_guard lock(mutex_);
  peer(rank).silent_until = monotonic_seconds();
}

bool MpiHub::silent(int rank) const {
  const std::lock_guard lock(mutex_);
  const Peer& who = peer(rank);
  return !who.idle && limit(who) > 0 && monotonic_seconds() - who.silent_until > limit(who);
}

void MpiHub::note_failure(const Failure& failure) {
  if (failure_.rank < 0 && failure.rank >= 0 && failure.rank < count()) failure_ = failure;
}

void MpiHub::fail(int reporter, int rank, const std::string& reason, bool cancelled) {
  {
    const std::lock_guard lock(mutex_);
    if (reporter != own_ || failure_.rank >= 0) return;
    note_failure({rank, cancelled, reason});
    changed_.notify_all();
  }
  Parcel told = parcel_of(Kind::kFailure, reason);
  told.head.numbers[0] = rank;
  told.head.numbers[1] = cancelled;
  tell_all(told);
}

bool MpiHub::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_.rank >= 0;
}

bool MpiHub::cancelled() const {
  const std::lock_guard lock(mutex_);
  return failure_.cancelled;
}

std::optional<int> MpiHub::failed_rank() const {
  const std::lock_guard lock(mutex_);
  return failure_.rank < 0 ? std::nullopt : std::optional<int>(failure_.rank);
}

std::string MpiHub::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_locked();
}

std::string MpiHub::failure_locked() const {
  if (failure_.rank < 0) return "";
  return concat("rank ", failure_.rank, " (", peer(failure_.rank).name, "): ", failure_.reason);
}

void MpiHub::throw_failure_locked() const {
  require<CancelledError>(!failure_.cancelled, "cancelled");
  throw DeviceError(failure_locked());
}

// As SharedHub's.
void MpiHub::begin(int rank) {
  Parcel told = parcel_of(Kind::kAttempt);
  {
    const std::lock_guard lock(mutex_);
    if (failure_.rank >= 0) throw_failure_locked();
    Peer& own = peer(rank);
    uint64_t next = own.attempt + 1;
    if (began_)
      for (const Peer& other : peers_) next = std::max(next, other.attempt);
    began_ = true;
    own.has_sent = false;
    own.attempt = told.head.attempt = next;
    own.silent_until = monotonic_seconds();
  }
  tell_all(told);
}

void MpiHub::send(int from, int to, const void* data, size_t bytes, uint32_t channel) {
  Parcel parcel = parcel_of(Kind::kData, {static_cast<const char*>(data), bytes});
  parcel.head.channel = channel;
  while (post_.under_way(to) > kMaxUnderWay) {
    std::unique_lock lock(mutex_);
    if (failure_.rank >= 0) throw_failure_locked();
    peer(from).silent_until = monotonic_seconds();
    changed_.wait_for(lock, std::chrono::milliseconds(5));
    lock.unlock();
    give_up_if_lost(to);
  }
  {
    const std::lock_guard lock(mutex_);
    if (failure_.rank >= 0) throw_failure_locked();
    Peer& own = peer(from);
    parcel.head.attempt = own.attempt;
    own.has_sent = true;
    own.silent_until = monotonic_seconds();
  }
  post_.send(to, std::move(parcel));
}

bool MpiHub::take_message(int from, uint64_t attempt, uint32_t channel, void* data, size_t bytes) {
  std::deque<Parcel>& inbox = peer(from).inbox;
  const auto found = std::find_if(inbox.begin(), inbox.end(), [&](const Parcel& p) {
    return p.head.attempt == attempt && p.head.channel == channel;
  });
  if (found == inbox.end()) return false;
  const Parcel parcel = std::move(*found);
  inbox.erase(found);
  require<InternalError>(parcel.body.size() == bytes, "rank ", from, " (", peer(from).name, ") sent ",
                         parcel.body.size(), " bytes, rank ", own_, " expected ", bytes);
  if (bytes > 0) std::memcpy(data, parcel.body.data(), bytes);
  return true;
}

void MpiHub::receive(int from, int to, void* data, size_t bytes, uint32_t channel) {
  struct Hurry {
    explicit Hurry(MpiPost& p) : post(p) { post.hurry(true); }
    ~Hurry() { post.hurry(false); }
    MpiPost& post;
  };
  std::unique_lock lock(mutex_);
  Peer& own = peer(to);
  const uint64_t attempt = own.attempt;
  std::erase_if(peer(from).inbox, [&](const Parcel& p) { return p.head.attempt < attempt; });
  own.silent_until = monotonic_seconds();
  if (failure_.rank < 0 && take_message(from, attempt, channel, data, bytes)) return;
  const Hurry hurry(post_);
  for (;;) {
    if (failure_.rank >= 0) throw_failure_locked();
    if (take_message(from, attempt, channel, data, bytes)) return;
    if (peer(from).attempt > attempt) throw AttemptOver{};
    own.silent_until = monotonic_seconds();  // it waits, which is not its fault
    if (changed_.wait_for(lock, std::chrono::milliseconds(100)) == std::cv_status::no_timeout) {
      if (monotonic_seconds() - looked_ < 0.1) continue;  // others' parcels must not keep it from looking
    }
    // Whether it has ended counts only after all that it had sent: no message comes in between.
    if (take_message(from, attempt, channel, data, bytes)) return;
    looked_ = monotonic_seconds();
    const std::string reason = failure_.rank < 0 ? why_useless_locked(from) : "";
    if (reason.empty()) continue;
    lock.unlock();
    blame(from, reason);
    lock.lock();
  }
}

void MpiHub::expect(int from, int to) {
  {
    const std::lock_guard lock(mutex_);
    peer(to).silent_until = monotonic_seconds();
    if (failure_.rank >= 0) throw_failure_locked();
    if (peer(from).attempt > peer(to).attempt) throw AttemptOver{};
  }
  give_up_if_lost(from);
  const std::lock_guard lock(mutex_);
  if (failure_.rank >= 0) throw_failure_locked();
}

}  // namespace rocm_sd
