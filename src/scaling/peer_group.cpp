#include "scaling/peer_group.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "kernels/exchange/exchange.hpp"
#include "scaling/rank_windows.hpp"

namespace rocm_sd {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

constexpr size_t kLeastSlot = size_t{1} << 16;

// Why the devices have no windows; empty: they may have.
std::string refusal_of(const std::vector<Device*>& devices) {
  if (devices.size() > static_cast<size_t>(kMaxExchangeRanks))
    return concat("more than ", kMaxExchangeRanks, " ranks");
  for (Device* device : devices) {
    if (device->kind() == DeviceKind::kHost || !window_host(*device)) return "not all of them are GPUs";
    if (device->kind() != devices[0]->kind()) return "they have different drivers";
    if (!can_exchange(*device)) return concat(device->name(), ": no kernels for it");
  }
  return "";
}

}  // namespace

PeerGroup::PeerGroup(const std::vector<std::string>& names, const std::vector<Device*>& devices,
                     const RankPatience& patience, ExchangeWay way)
    : way_(way), patience_(patience) {
  for (size_t i = 0; i < devices.size(); ++i) {
    auto rank = std::make_unique<Rank>();
    rank->name = names[i];
    rank->device = static_cast<GpuDevice*>(devices[i]);
    rank->host = window_host(*devices[i]);
    ranks_.push_back(std::move(rank));
  }
}

PeerGroup::~PeerGroup() {
  stop();
  try {
    for (const auto& rank : ranks_) rank->device->synchronize();
  } catch (const Error& error) {
    log().warn("{}", error.what());
  }
  for (size_t i = 0; i < count(); ++i) {
    drop_window(i);
    if (ranks_[i]->control) ranks_[i]->device->free(ranks_[i]->control, sizeof(ExchangeControl));
    if (i > 0 && words_) ranks_[i]->host->forget(words_);
  }
  if (words_) ranks_[0]->host->free_host_window(words_);
}

size_t PeerGroup::window_bytes(const WindowSizes& sizes) const {
  return count() * kFlagBytes + count() * 2 * sizes.slot + (count() - 1) * 2 * sizes.kept;
}

void PeerGroup::drop_window(size_t rank) noexcept {
  Rank& own = *ranks_[rank];
  if (!own.window) return;
  for (const auto& other : ranks_)
    if (other.get() != &own) other->host->forget(own.window);
  way_ == ExchangeWay::kPeer ? own.host->free_window(own.window) : own.host->free_host_window(own.window);
  own.window = nullptr;
  own.bytes = 0;
  own.sizes = {};
}

void PeerGroup::make_window(size_t rank, const WindowSizes& sizes) {
  Rank& own = *ranks_[rank];
  const size_t bytes = window_bytes(sizes);
  own.window = static_cast<char*>(way_ == ExchangeWay::kPeer ? own.host->allocate_window(bytes)
                                                             : own.host->allocate_host_window(bytes));
  require<OutOfMemoryError>(own.window != nullptr, own.name, ": cannot allocate ", bytes,
                            " bytes for what other ranks send (--split; ROCM_SD_EXCHANGE=host needs none)");
  own.bytes = bytes;
  own.sizes = sizes;
  for (const auto& other : ranks_)
    if (other.get() != &own) other->host->admit(own.window, bytes);
}

void PeerGroup::connect(size_t rank, const ExchangeCounts& before) {
  Rank& own = *ranks_[rank];
  ExchangeControl control{};
  control.counts = before;
  control.slot_bytes = static_cast<int64_t>(own.sizes.slot);
  control.kept_bytes = static_cast<int64_t>(own.sizes.kept);
  control.patience = static_cast<uint64_t>(patience_.later * 1e9);
  control.stop = reinterpret_cast<const uint32_t*>(words_);
  control.late = reinterpret_cast<uint32_t*>(words_ + 1 + rank);
  const auto slots = [&](const Rank& of, size_t writer) {
    return of.window + count() * kFlagBytes + 2 * of.sizes.slot * writer;
  };
  const auto kept = [&](size_t reader, size_t writer) {
    const Rank& of = *ranks_[reader];
    return slots(of, count()) + 2 * of.sizes.kept * (writer < reader ? writer : writer - 1);
  };
  const auto flag = [&](const Rank& of, size_t writer) {
    return reinterpret_cast<uint32_t*>(of.window + writer * kFlagBytes);
  };
  for (size_t other = 0; other < count(); ++other) {
    if (other == rank) continue;
    control.peers[other] = {.to = slots(*ranks_[other], rank),
                            .from = slots(own, other),
                            .kept_to = kept(other, rank),
                            .kept_from = kept(rank, other),
                            .flag_there = flag(*ranks_[other], rank),
                            .flag_here = flag(own, other)};
  }
  if (!own.control) own.control = static_cast<ExchangeControl*>(own.device->allocate(sizeof control));
  own.device->copy_to_device(own.control, &control, sizeof control);
}

void PeerGroup::begin_call() {
  for (const auto& rank : ranks_) rank->device->synchronize();
  std::memset(static_cast<void*>(words_), 0, kWordsBytes);
  const std::vector<char> zeros(count() * kFlagBytes);
  for (size_t rank = 0; rank < count(); ++rank) {
    Rank& own = *ranks_[rank];
    if (way_ == ExchangeWay::kPeer)
      own.device->copy_to_device(own.window, zeros.data(), zeros.size());
    else
      std::memset(own.window, 0, zeros.size());
    connect(rank);
    own.begun = false;
  }
}

// Two rounds of messages from each rank to each other one, with bytes of their own, over both slots.
std::string PeerGroup::test() {
  if (way_ == ExchangeWay::kPeer)
    for (const auto& from : ranks_)
      for (const auto& to : ranks_)
        if (const std::string reason = from == to ? "" : from->host->reach(*to->host); !reason.empty())
          return reason;
  words_ = static_cast<std::atomic<uint32_t>*>(ranks_[0]->host->allocate_host_window(kWordsBytes));
  if (!words_) return "no host memory that GPUs reach";
  for (size_t i = 1; i < count(); ++i) ranks_[i]->host->admit(words_, kWordsBytes);
  for (size_t i = 0; i < count(); ++i) make_window(i, {.slot = kLeastSlot});
  begin_call();
  constexpr int64_t kWords = kLeastSlot / sizeof(float);
  const auto pattern = [](size_t from, size_t to, int round, int64_t i) {
    return static_cast<float>((static_cast<int64_t>(from * 31 + to * 17) + round * 7 + i * 13) % 65537);
  };
  std::vector<Tensor> sent, got;
  std::vector<std::unique_ptr<Arena>> arenas;
  const auto with = [&](size_t rank) { return ((1u << count()) - 1) & ~(1u << rank); };
  for (int round = 0; round < 2; ++round) {
    sent.clear(), got.clear();
    for (size_t i = 0; i < count(); ++i) {
      Device& device = *ranks_[i]->device;
      std::vector<float> values;
      for (size_t to = 0; to < count(); ++to)
        for (int64_t w = 0; w < kWords; ++w) values.push_back(pattern(i, to, round, w));
      const auto n = static_cast<int64_t>(count());
      sent.push_back(tensor_from(device, {n, kWords}, values.data()));
      got.push_back(make_tensor(device, {n, kWords}, DType::kF32));
      arenas.push_back(std::make_unique<Arena>(device));
    }
    for (const bool puts : {true, false})
      for (size_t i = 0; i < count(); ++i) {
        Exec ex(*arenas[i]);
        std::vector<ExchangePart> parts;
        for (size_t other = 0; other < count(); ++other)
          if (other != i)
            parts.push_back({(puts ? sent : got)[i].narrow(0, static_cast<int64_t>(other), 1), 1u << other});
        if (puts)
          put(ex, ranks_[i]->control, parts, {}, with(i));
        else
          take(ex, ranks_[i]->control, parts, with(i), true);
      }
    for (size_t i = 0; i < count(); ++i) {
      const std::vector<float> values = to_floats(*ranks_[i]->device, got[i]);
      if (const uint32_t late = words_[1 + i]; late != 0)
        return concat(ranks_[i]->name, " waited in vain for ", ranks_[late - 1]->name);
      for (size_t from = 0; from < count(); ++from)
        for (int64_t w = 0; from != i && w < kWords; ++w)
          if (values[from * kWords + static_cast<size_t>(w)] != pattern(from, i, round, w))
            return concat("other bytes came from ", ranks_[from]->name, " to ", ranks_[i]->name);
    }
  }
  begin_call();
  return "";
}

std::shared_ptr<PeerGroup> PeerGroup::make(const std::vector<std::string>& names,
                                           const std::vector<Device*>& devices, const RankPatience& patience,
                                           std::optional<ExchangeWay> asked) {
  std::string why = refusal_of(devices);
  if (!why.empty()) {
    require<UsageError>(!asked, "ROCM_SD_EXCHANGE=", asked ? exchange_way_name(*asked) : "", ": ", why);
    return nullptr;
  }
  for (const ExchangeWay way : {ExchangeWay::kPeer, ExchangeWay::kMapped}) {
    if (asked && *asked != way) continue;
    std::string reason;
    try {
      RankPatience soon = patience;
      soon.later = patience.later > 0 ? std::min(patience.later, 2.0) : 0;
      std::shared_ptr<PeerGroup> group(new PeerGroup(names, devices, soon, way));
      reason = group->test();
      group.reset();
      if (reason.empty()) {
        group.reset(new PeerGroup(names, devices, patience, way));
        reason = group->test();
        if (reason.empty()) {
          log().info("exchange: by stores of kernels into {}{}",
                     way == ExchangeWay::kPeer ? "the other GPU's memory" : "the host's memory",
                     why.empty() ? "" : concat(" (", why, ")"));
          return group;
        }
      }
    } catch (const Error& error) {
      reason = error.what();
    }
    require<UsageError>(!asked, "ROCM_SD_EXCHANGE=", exchange_way_name(way), ": ", reason);
    why += concat(why.empty() ? "" : "; ", exchange_way_name(way), ": ", reason);
  }
  log().warn("exchange: by messages of the host ({})", why);
  return nullptr;
}

std::unique_ptr<PeerWindows> PeerGroup::windows(HubRanks& ranks) {
  return std::make_unique<RankWindows>(*this, ranks);
}

}  // namespace rocm_sd
