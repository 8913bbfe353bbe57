#include "scaling/shared_hub.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "scaling/process_state.hpp"

namespace rocm_sd {
namespace {

void put(char* to, size_t capacity, const std::string& text) {
  const size_t bytes = std::min(text.size(), capacity - 1);
  std::memcpy(to, text.data(), bytes);
  to[bytes] = '\0';
}

}  // namespace

SharedHub::SharedHub(const std::vector<std::string>& names, RankPatience patience)
    : memory_(static_cast<int>(names.size())),
      patience_(patience),
      inboxes_(names.size() * names.size()),
      anew_(names.size(), 0),
      stopped_since_(names.size()) {
  for (size_t rank = 0; rank < names.size(); ++rank) {
    RankSlot& slot = memory_.slot(static_cast<int>(rank));
    put(slot.name, sizeof slot.name, names[rank]);
    slot.beat = monotonic_seconds();
  }
}

SharedHub::SharedHub(const std::string& path, int rank, int count, const std::string& name,
                     RankPatience patience)
    : memory_(path, rank, count, patience.first > 0 ? patience.first : 1e9),
      patience_(patience),
      own_(rank),
      inboxes_(static_cast<size_t>(count) * static_cast<size_t>(count)),
      anew_(static_cast<size_t>(count), 0),
      stopped_since_(static_cast<size_t>(count)) {
  RankSlot& slot = memory_.slot(rank);
  put(slot.name, sizeof slot.name, name);
}

SharedHub::~SharedHub() {
  if (own_ < 0) return;
  memory_.slot(own_).left = 1;
  for (int rank = 0; rank < count(); ++rank) ring_bell(memory_.slot(rank));
}

void SharedHub::begin_call(int rank) {
  if (own_ < 0) {
    // One of them, for all, before their threads begin.
    memory_.clear();
    for (Inbox& box : inboxes_) box = {};
    std::fill(anew_.begin(), anew_.end(), 0);
    return;
  }
  if (failed()) throw_failure();
  anew_[static_cast<size_t>(rank)] = 0;
  beat(rank);
  memory_.slot(rank).idle = 0;
}

void SharedHub::end_call(int rank) {
  if (own_ >= 0) memory_.slot(rank).idle = 1;
}

double SharedHub::limit(int rank) const {
  return memory_.slot(rank).has_sent ? patience_.later : patience_.first;
}

bool SharedHub::silent(int rank) const {
  const RankSlot& slot = memory_.slot(rank);
  return !slot.idle && limit(rank) > 0 && monotonic_seconds() - slot.beat > limit(rank);
}

std::string SharedHub::why_lost(int rank) const {
  const RankSlot& slot = memory_.slot(rank);
  if (own_ >= 0 && rank != own_) {
    const int process = slot.process;
    if (slot.left) return concat("its process ", process, " has ended before the work was done");
    if (!memory_.lives(rank))
      return concat("its process ", process, " is gone: killed, or crashed (the kernel's log says which)");
    std::atomic<double>& since = stopped_since_[static_cast<size_t>(rank)];
    if (process_state(process) != ProcessState::kStopped)
      since = 0;
    else if (since == 0)
      since = monotonic_seconds();
    else if (monotonic_seconds() - since > kStoppedSeconds)
      return concat("its process ", process, " has been stopped for ", kStoppedSeconds,
                    " s (SIGSTOP, or a debugger)");
  }
  if (silent(rank)) return concat("no sign of life for ", limit(rank), " s");
  return "";
}

void SharedHub::fail(int reporter, int rank, const std::string& reason, bool cancelled) {
  if (failed()) return;
  RankSlot& slot = memory_.slot(reporter);
  slot.failed_rank = rank;
  slot.cancelled = cancelled;
  put(slot.reason, sizeof slot.reason, reason);
  int32_t nobody = -1;
  memory_.board().reporter.compare_exchange_strong(nobody, reporter);
  for (int other = 0; other < count(); ++other) ring_bell(memory_.slot(other));
}

bool SharedHub::cancelled() const {
  const int reporter = memory_.board().reporter;
  return reporter >= 0 && memory_.slot(reporter).cancelled;
}

std::optional<int> SharedHub::failed_rank() const {
  const int reporter = memory_.board().reporter;
  return reporter < 0 ? std::nullopt : std::optional<int>(memory_.slot(reporter).failed_rank);
}

std::string SharedHub::failure() const {
  const int reporter = memory_.board().reporter;
  if (reporter < 0) return "";
  const RankSlot& slot = memory_.slot(reporter);
  return concat("rank ", slot.failed_rank, " (", name(slot.failed_rank), "): ", std::string(slot.reason));
}

void SharedHub::throw_failure() const {
  require<CancelledError>(!cancelled(), "cancelled");
  throw DeviceError(failure());
}

void SharedHub::give_up_if_lost(int reporter, int rank) {
  if (const std::string reason = why_lost(rank); !reason.empty()) fail(reporter, rank, reason);
}

// The first attempt of a call is the next one, for another rank that has ended the last call may have begun
// this one; later attempts catch up with whoever is ahead.
void SharedHub::begin(int rank) {
  if (failed()) throw_failure();
  RankSlot& own = memory_.slot(rank);
  uint64_t next = own.attempt + 1;
  if (anew_[static_cast<size_t>(rank)])
    for (int other = 0; other < count(); ++other) next = std::max(next, memory_.slot(other).attempt.load());
  anew_[static_cast<size_t>(rank)] = 1;
  own.has_sent = 0;
  own.attempt = next;
  beat(rank);
  for (int other = 0; other < count(); ++other) ring_bell(memory_.slot(other));
}

void SharedHub::write(int from, int to, const char* data, size_t bytes) {
  RankRing& ring = memory_.ring(from, to);
  char* const room = memory_.ring_data(from, to);
  const uint64_t size = memory_.board().ring_bytes;
  RankSlot &own = memory_.slot(from), &other = memory_.slot(to);
  bool rang = true;  // the questions of why_lost() ask the system: not for every message
  while (bytes > 0) {
    const uint32_t seen = own.bell;
    const uint64_t written = ring.written, free = size - (written - ring.taken);
    if (free == 0) {
      // It takes in what comes meanwhile: two that send to each other do not wait for ever.
      if (failed()) throw_failure();
      take_in(from);
      beat(from);
      if (!rang) give_up_if_lost(from, to);
      if (ring.taken + size == written) rang = wait_for_bell(own, seen);
      continue;
    }
    const uint64_t at = written % size, part = std::min({uint64_t{bytes}, free, size - at});
    std::memcpy(room + at, data, part);
    data += part;
    bytes -= part;
    ring.written = written + part;
    ring_bell(other);
  }
}

void SharedHub::send(int from, int to, const void* data, size_t bytes, uint32_t channel) {
  if (failed()) throw_failure();
  const Header header{memory_.slot(from).attempt, bytes, channel, 0};
  write(from, to, reinterpret_cast<const char*>(&header), sizeof header);
  write(from, to, static_cast<const char*>(data), bytes);
  memory_.slot(from).has_sent = 1;
  beat(from);
}

void SharedHub::take_from(int from, int to) {
  RankRing& ring = memory_.ring(from, to);
  const uint64_t size = memory_.board().ring_bytes, written = ring.written;
  uint64_t taken = ring.taken;
  if (taken == written) return;
  const char* const room = memory_.ring_data(from, to);
  Inbox& box = inbox(from, to);
  const auto take = [&](void* target, size_t wanted) {
    size_t got = 0;
    while (got < wanted && taken < written) {
      const uint64_t at = taken % size, part = std::min({uint64_t{wanted - got}, written - taken, size - at});
      std::memcpy(static_cast<char*>(target) + got, room + at, part);
      got += part;
      taken += part;
    }
    return got;
  };
  while (taken < written) {
    if (box.header_bytes < sizeof(Header)) {
      box.header_bytes +=
          take(reinterpret_cast<char*>(&box.header) + box.header_bytes, sizeof(Header) - box.header_bytes);
      if (box.header_bytes < sizeof(Header)) break;
      box.direct = box.target && box.header.attempt == box.wanted.attempt &&
                   box.header.channel == box.wanted.channel && box.header.bytes == box.wanted.bytes;
      if (!box.direct) box.coming = {box.header, std::vector<char>(box.header.bytes)};
      box.body_bytes = 0;
    }
    char* const body = box.direct ? box.target : box.coming.bytes.data();
    box.body_bytes += take(body + box.body_bytes, box.header.bytes - box.body_bytes);
    if (box.body_bytes < box.header.bytes) break;
    if (box.direct)
      box.target = nullptr;
    else
      box.messages.push_back(std::move(box.coming));
    box.header_bytes = 0;
  }
  ring.taken = taken;
  ring_bell(memory_.slot(from));
}

void SharedHub::take_in(int to) {
  for (int from = 0; from < count(); ++from)
    if (from != to) take_from(from, to);
}

// From what has come, without waiting.
bool SharedHub::take_message(Inbox& box, const Header& wanted, void* data, int from, int to) {
  const auto found = std::find_if(box.messages.begin(), box.messages.end(), [&](const Message& m) {
    return m.header.attempt == wanted.attempt && m.header.channel == wanted.channel;
  });
  if (found == box.messages.end()) return false;
  const Message message = std::move(*found);
  box.messages.erase(found);
  require<InternalError>(message.bytes.size() == wanted.bytes, "rank ", from, " (", name(from), ") sent ",
                         message.bytes.size(), " bytes, rank ", to, " expected ", wanted.bytes);
  std::memcpy(data, message.bytes.data(), wanted.bytes);
  return true;
}

void SharedHub::expect(int from, int to) {
  beat(to);
  if (failed()) throw_failure();
  if (memory_.slot(from).attempt > memory_.slot(to).attempt) throw AttemptOver{};
  give_up_if_lost(to, from);
  if (failed()) throw_failure();
}

void SharedHub::receive(int from, int to, void* data, size_t bytes, uint32_t channel) {
  RankSlot& own = memory_.slot(to);
  Inbox& box = inbox(from, to);
  const Header wanted{own.attempt, bytes, channel, 0};
  std::erase_if(box.messages, [&](const Message& m) { return m.header.attempt < wanted.attempt; });
  // A message that is half there goes on as it began.
  const bool direct = bytes > 0 && box.header_bytes < sizeof(Header);
  const auto forget = [](Inbox* b) { b->target = nullptr; };
  const std::unique_ptr<Inbox, decltype(forget)> target(&box, forget);
  for (bool rang = true;;) {
    const uint32_t seen = own.bell;
    if (failed()) throw_failure();
    const uint64_t theirs = memory_.slot(from).attempt;  // before what it has sent until then is taken in
    if (take_message(box, wanted, data, from, to)) return beat(to);
    box.wanted = wanted;
    if (direct) box.target = static_cast<char*>(data);
    take_in(to);
    if ((direct && !box.target) || take_message(box, wanted, data, from, to)) return beat(to);
    if (theirs > wanted.attempt) throw AttemptOver{};
    beat(to);  // it waits, which is not its fault
    if (!rang) give_up_if_lost(to, from);
    if (!failed()) rang = wait_for_bell(own, seen);
  }
}

}  // namespace rocm_sd
