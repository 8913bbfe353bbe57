#include "scaling/rank_windows.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kSlotGranularity = 4096;

size_t rounded(size_t bytes) { return (bytes + kSlotGranularity - 1) / kSlotGranularity * kSlotGranularity; }

}  // namespace

bool RankWindows::shares_device() const {
  return std::ranges::count(group_.ranks_, own_.name, [](const auto& rank) { return rank->name; }) > 1;
}

void RankWindows::need(size_t message_bytes) { need_.slot = std::max(need_.slot, rounded(message_bytes)); }
void RankWindows::need_kept(size_t bytes) { need_.kept = std::max(need_.kept, rounded(bytes)); }

size_t RankWindows::bytes() const { return group_.window_bytes(need_.most_of(own_.sizes)); }

// Where there is nobody but those who came. unlike: their windows differ.
void RankWindows::meet_all(WindowSizes& need, bool& unlike) {
  struct Told {
    WindowSizes need, have;
  };
  const Told own{need, own_.sizes};
  for (int to = 0; to < ranks_.count(); ++to)
    if (to != ranks_.rank()) ranks_.send(to, &own, sizeof own);
  for (int from = 0; from < ranks_.count(); ++from) {
    if (from == ranks_.rank()) continue;
    Told other{};
    ranks_.receive(from, &other, sizeof other);
    need = need.most_of(other.need);
    unlike = unlike || !(other.have == own.have);
  }
}

void RankWindows::meet() {
  check();
  bool unlike = false;
  meet_all(need_, unlike);
  if (unlike || !(need_.most_of(own_.sizes) == own_.sizes)) grow(need_);
}

void RankWindows::grow(const WindowSizes& sizes) {
  const auto rank = static_cast<size_t>(ranks_.rank());
  const auto all_here = [&] {
    WindowSizes need;
    bool unlike = false;
    meet_all(need, unlike);
  };
  own_.device->synchronize();
  all_here();
  const ExchangeCounts before = counts();
  group_.drop_window(rank);
  group_.make_window(rank, sizes);
  const std::vector<char> zeros(group_.count() * PeerGroup::kFlagBytes);
  if (group_.way_ == ExchangeWay::kPeer)
    own_.device->copy_to_device(own_.window, zeros.data(), zeros.size());
  else
    std::memset(own_.window, 0, zeros.size());
  all_here();
  group_.connect(rank, before);
  ++grown_;
}

ExchangeCounts RankWindows::counts() const {
  ExchangeControl control;
  own_.device->copy_to_host(&control, own_.control, sizeof control);
  return control.counts;
}

void RankWindows::await(uint32_t ranks) {
  if (own_.host->capturing()) return;
  using Clock = std::chrono::steady_clock;
  ExchangeControl control;
  own_.device->copy_to_host(&control, own_.control, sizeof control);
  const auto flags = [&](size_t rank) {
    uint32_t flag = 0;
    if (group_.way_ == ExchangeWay::kPeer)
      own_.device->copy_to_host(&flag, control.peers[rank].flag_here, sizeof flag);
    else
      flag = std::atomic_ref(*control.peers[rank].flag_here).load(std::memory_order_acquire);
    return flag;
  };
  for (size_t rank = 0; rank < group_.count(); ++rank) {
    if (!(ranks >> rank & 1)) continue;
    auto asked = Clock::now();
    while (static_cast<int32_t>(flags(rank) - (control.peers[rank].taken + 1)) < 0) {
      if (Clock::now() - asked > std::chrono::milliseconds(1)) {
        check();
        ranks_.expect(static_cast<int>(rank));
        asked = Clock::now();
      }
      std::this_thread::yield();
    }
  }
}

void RankWindows::check() {
  const auto rank = static_cast<size_t>(ranks_.rank());
  if (const uint32_t late = group_.words_[1 + rank].load(); late != 0) {
    const auto lost = static_cast<int>(late) - 1;
    ranks_.give_up(lost, concat("its GPU has sent nothing for ", group_.patience_.later, " s"));
    ranks_.expect(lost);  // throws
  }
  if (group_.words_[0].load() == 0) return;
  for (int other = 0; other < ranks_.count(); ++other)
    if (other != ranks_.rank()) ranks_.expect(other);
}

void RankWindows::begin() {
  if (!own_.begun) {
    own_.begun = true;
    return;
  }
  group_.stop();
  own_.device->synchronize();
  WindowSizes need;
  bool unlike = false;
  meet_all(need, unlike);  // nobody's kernels run
  if (ranks_.rank() == 0) group_.words_[0].store(0);
  group_.words_[1 + static_cast<size_t>(ranks_.rank())].store(0);
  grow(need_.most_of(own_.sizes));
}

}  // namespace rocm_sd
