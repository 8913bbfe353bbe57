#include "runtime/weight_stream.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/memory_budget.hpp"
#include "runtime/stream_turns.hpp"

namespace rocm_sd {
namespace {

// Least bytes that copies are ahead of the launches that read them.
constexpr size_t kLeastWindow = 64 << 20;
// A weight of less than this part of all takes no turns: a copy has a price of its own.
constexpr uint64_t kSmallPart = 5000;
constexpr uint64_t kSmall = 16 << 10;
constexpr size_t kAlignment = 512;  // as a device's own blocks, so that ops choose the same kernels

// Operations in the time of one byte of the device's own memory: 80 on a Radeon RX 7900 XTX to 250 on an
// H100.
constexpr double kOperationsPerByte = 150;

double work_of(const Exec& ex) {
  double work = 0;
  for (const auto& [problem, planned] : ex.problems())
    work += planned.flops + kOperationsPerByte * planned.bytes;
  return work;
}

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// By arena: what a Program finds its stream by, though neither knows of the other.
struct Registry {
  std::mutex mutex;
  std::map<const Arena*, WeightStream*> streams;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

// One forward under way on this thread.
class WeightStream::Run {
 public:
  Run(Exec& ex, WeightStream& stream, StreamSchedule& schedule)
      : ex_(ex), stream_(stream), schedule_(schedule), outer_(std::exchange(current_, this)) {}
  ~Run() { current_ = outer_; }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  static Run* current() { return current_; }

  // Copies that wait for nothing of this run start with it.
  void begin() {
    if (schedule_.turns.empty()) return;
    ex_.launch({"stream", "weights begin", 0, 0},
               [side = side_copies(ex_.device()), &device = ex_.device(), &schedule = schedule_] {
                 if (side) {
                   side->mark_launches(schedule.begin.get());
                   side->copies_wait(schedule.begin.get());
                 }
                 issue(device, side, schedule, 0);
               });
  }

  void use(const std::shared_ptr<StreamedStorage>& storage) {
    if (ex_.planning()) {
      if (!schedule_.uses.empty() && schedule_.uses.back() == storage) return;
      schedule_.uses.push_back(storage);
      schedule_.work_before.push_back(work_of(ex_));
      return;
    }
    if (used_ > 0 && schedule_.uses[used_ - 1] == storage) return;
    require<InternalError>(used_ < schedule_.uses.size() && schedule_.uses[used_] == storage,
                           "weight stream: use ", used_, " of ", schedule_.uses.size(),
                           " is of another weight than planned");
    ++used_;
    if (!stream_.resident(storage.get())) take_turn();
  }

 private:
  void take_turn() {
    const size_t index = turn_++;
    StreamSchedule::Turn& turn = schedule_.turns.at(index);
    turn.storage->place(static_cast<char*>(schedule_.ring) + turn.offset);
    const auto bytes = static_cast<double>(turn.storage->bytes());
    ex_.launch({"stream", fmt::format("weights {} of {}", index + 1, schedule_.turns.size()), 0, bytes},
               [side = side_copies(ex_.device()), &device = ex_.device(), &schedule = schedule_, index] {
                 StreamSchedule::Turn& own = schedule.turns[index];
                 if (index > 0) {
                   if (side) side->mark_launches(own.free.get());
                   issue(device, side, schedule, index);
                 }
                 if (side) side->launches_wait(own.copied.get());
               });
  }

  // The copies that may begin once the launches before this turn are over.
  static void issue(Device& device, SideCopies* side, StreamSchedule& schedule, size_t index) {
    bool waits = side && index > 0;
    const auto earlier = [&](const StreamSchedule::Turn& turn) { return turn.issued < index; };
    auto at = std::partition_point(schedule.turns.begin(), schedule.turns.end(), earlier);
    for (; at != schedule.turns.end() && at->issued == index; ++at) {
      const StreamSchedule::Turn& turn = *at;
      void* const to = static_cast<char*>(schedule.ring) + turn.offset;
      if (!side) {
        device.copy_to_device(to, turn.storage->host(), turn.storage->bytes());
        continue;
      }
      if (std::exchange(waits, false)) side->copies_wait(schedule.turns[index].free.get());
      side->copy_beside(to, turn.storage->host(), turn.storage->bytes());
      side->mark_copies(turn.copied.get());
    }
  }

  Exec& ex_;
  WeightStream& stream_;
  StreamSchedule& schedule_;
  Run* outer_;
  size_t used_ = 0, turn_ = 0;
  static thread_local Run* current_;
};
thread_local WeightStream::Run* WeightStream::Run::current_ = nullptr;

WeightStream::WeightStream(Device& device, Arena& arena) : device_(device), arena_(arena) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  require<InternalError>(all.streams.emplace(&arena, this).second, "weight stream: the arena has one");
}

WeightStream::~WeightStream() {
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.streams.erase(&arena_);
  }
  try {
    leave();
  } catch (const Error&) {  // a lost device has freed everything
  }
}

WeightStream* WeightStream::of(const Arena& arena) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.streams.find(&arena);
  return found == all.streams.end() ? nullptr : found->second;
}

Tensor WeightStream::add(const Tensor& values, Kind kind) {
  if (!values) return {};
  leave();
  const auto storage = std::make_shared<StreamedStorage>(device_, values.data(), values.bytes());
  if (kind == Kind::kAlways) always_.push_back(storage);
  settled_ = false;
  return Tensor(storage, values.shape(), values.dtype());
}

void WeightStream::set_room(uint64_t bytes) {
  if (bytes == room_) return;
  leave();
  room_ = bytes;
  settled_ = false;
}

StreamBytes WeightStream::bytes() {
  settle();
  return bytes_;
}

// What the program that reads the most reads, in its order, then what others read beside.
std::vector<WeightStream::Candidate> WeightStream::candidates() const {
  std::vector<std::pair<uint64_t, std::shared_ptr<StreamSchedule>>> order;
  for (const auto& weak : schedules_) {
    const auto schedule = weak.lock();
    if (!schedule) continue;
    uint64_t bytes = 0;
    for (const auto& storage : schedule->uses) bytes += storage->bytes();
    order.emplace_back(bytes, schedule);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Candidate> out;
  std::set<const StreamedStorage*> known;
  for (const auto& [bytes, schedule] : order)
    for (size_t i = 0; i < schedule->uses.size(); ++i) {
      const bool last = i + 1 == schedule->uses.size();
      const double end = last ? schedule->work : schedule->work_before[i + 1];
      if (known.insert(schedule->uses[i].get()).second)
        out.push_back({schedule->uses[i], end - schedule->work_before[i]});
    }
  return out;
}

size_t WeightStream::window_for(const std::vector<Candidate>& all) const {
  size_t largest = 0, sum = 0;
  for (const auto& [storage, work] : all) {
    largest = std::max(largest, aligned(storage->bytes()));
    sum += aligned(storage->bytes());
  }
  // Of small models not more than a part: else the ring would hold them.
  return std::max(2 * largest, std::min(kLeastWindow, sum / 16));
}

// Which weights stay (stream_turns.hpp). -> whether any stays that could take turns.
bool WeightStream::choose(const std::vector<Candidate>& all, uint64_t slack) {
  uint64_t sum = 0;
  for (const auto& [storage, work] : all) sum += storage->bytes();
  const auto stay = [&](const std::shared_ptr<StreamedStorage>& storage) {
    residents_.push_back(storage);
    bytes_.resident += aligned(storage->bytes());
  };
  std::vector<Candidate> large;
  std::vector<StreamedUse> uses;
  uint64_t of_large = 0;
  for (const auto& [storage, work] : all) {
    if (storage->stays() || storage->bytes() < std::max(kSmall, sum / kSmallPart)) {
      stay(storage);
      continue;
    }
    large.push_back({storage, work});
    uses.push_back({aligned(storage->bytes()), work});
    of_large += aligned(storage->bytes());
  }
  window_ = window_for(large);
  if (bytes_.resident + of_large <= room_) {
    for (const auto& [storage, work] : large) stay(storage);
    return true;
  }
  const uint64_t fixed = bytes_.resident + window_ + slack;
  const std::vector<bool> turns = choose_turns(uses, room_ > fixed ? room_ - fixed : 0);
  bool any = false;
  for (size_t i = 0; i < large.size(); ++i)
    if (!turns[i]) {
      stay(large[i].storage);
      any = true;
    }
  return any;
}

bool WeightStream::resident(const StreamedStorage* storage) const {
  const auto before = [](const std::shared_ptr<StreamedStorage>& a, const StreamedStorage* b) {
    return a.get() < b;
  };
  const auto found = std::lower_bound(residents_.begin(), residents_.end(), storage, before);
  return found != residents_.end() && found->get() == storage;
}

// -> bytes of the ring that the program's turns take.
size_t WeightStream::arrange(StreamSchedule& schedule, size_t window) const {
  schedule.turns.clear();
  std::vector<BlockLifetime> blocks;
  size_t first = 0, ahead = 0;  // turns [first, now] fit the window together
  for (const auto& storage : schedule.uses) {
    if (resident(storage.get())) continue;
    const auto now = static_cast<int64_t>(blocks.size());
    const size_t bytes = aligned(storage->bytes());
    ahead += bytes;
    blocks.push_back({bytes, 0, now + 1});
    while (ahead > window && static_cast<int64_t>(first) < now) ahead -= blocks[first++].bytes;
    blocks.back().birth = static_cast<int64_t>(first);
    StreamSchedule::Turn turn;
    turn.storage = storage.get();
    turn.issued = first;
    schedule.turns.push_back(std::move(turn));
  }
  const ArenaPlan plan = pack_arena(blocks);
  for (size_t i = 0; i < blocks.size(); ++i) schedule.turns[i].offset = plan.slots[i].offset;
  return plan.bytes;
}

// Of a program that is planned while the others run: it takes the ring as it is.
void WeightStream::arrange_late(StreamSchedule& schedule) const {
  for (size_t window = window_; arrange(schedule, window) > bytes_.ring; window /= 2)
    require<OutOfMemoryError>(window > 0, "weight stream: a ring of ", bytes_.ring,
                              " bytes is too small for a program that is planned late");
  equip(schedule);
}

void WeightStream::equip(StreamSchedule& schedule) const {
  schedule.ring = ring_.data();
  SideCopies* const side = side_copies(device_);
  if (!side || schedule.turns.empty()) return;
  schedule.begin = side->make_point();
  for (StreamSchedule::Turn& turn : schedule.turns) {
    turn.free = side->make_point();
    turn.copied = side->make_point();
  }
}

void WeightStream::settle() {
  if (settled_) return;
  residents_.clear();  // else weights that were replaced would live on here
  std::erase_if(always_, [](const auto& weak) { return weak.expired(); });
  std::erase_if(schedules_, [](const auto& weak) { return weak.expired(); });
  // The packing of the ring may take more than the window: then less stays.
  const auto all = candidates();
  for (uint64_t slack = 0;;) {
    residents_.clear();
    bytes_ = {};
    for (const auto& weak : always_) {
      residents_.push_back(weak.lock());
      bytes_.resident += aligned(residents_.back()->bytes());
    }
    bytes_.all = bytes_.resident;
    for (const auto& [storage, work] : all) bytes_.all += aligned(storage->bytes());
    const bool could_be_less = choose(all, slack);
    std::sort(residents_.begin(), residents_.end());
    for (const auto& weak : schedules_) {
      const auto schedule = weak.lock();
      bytes_.ring = std::max<uint64_t>(bytes_.ring, arrange(*schedule, window_));
      uint64_t copied = 0;
      for (const StreamSchedule::Turn& turn : schedule->turns) copied += turn.storage->bytes();
      bytes_.copied = std::max(bytes_.copied, copied);
    }
    if (bytes_.device() <= room_ || !could_be_less) break;
    slack += bytes_.device() - room_;
  }
  settled_ = true;
}

void WeightStream::enter() {
  if (entered_) return;
  settle();
  entered_ = true;  // leave() takes back what an error left
  try {
    SideCopies* const side = side_copies(device_);
    device_.synchronize();  // what used these blocks before has ended
    // In one block: a driver rounds each of some thousand up, by up to 2 MiB.
    char* at = nullptr;
    if (bytes_.resident > 0) {
      block_ = make_tensor(device_, {static_cast<int64_t>(bytes_.resident)}, DType::kU8);
      at = block_.as<char>();
    }
    for (const auto& storage : residents_) {
      storage->enter_at(at, side);
      at += aligned(storage->bytes());
    }
    if (bytes_.ring > 0) ring_ = make_tensor(device_, {static_cast<int64_t>(bytes_.ring)}, DType::kU8);
    if (side) side->wait_for_copies();
  } catch (...) {
    leave();
    throw;
  }
  for (const auto& weak : schedules_)
    if (const auto schedule = weak.lock()) equip(*schedule);
}

void WeightStream::leave() {
  if (!std::exchange(entered_, false)) return;
  settled_ = false;  // programs may have been planned late
  device_.synchronize();
  if (SideCopies* const side = side_copies(device_)) side->wait_for_copies();
  for (const auto& storage : residents_) storage->leave();
  for (const auto& weak : schedules_)
    if (const auto schedule = weak.lock())
      for (const auto& storage : schedule->uses)
        if (!storage->on_device()) storage->leave();  // forgets its place in the ring
  ring_ = Tensor();
  block_ = Tensor();
  residents_.clear();
}

double WeightStream::link_rate() {
  if (rate_ >= 0) return rate_;
  rate_ = 0;
  SideCopies* const side = side_copies(device_);
  if (!side) return rate_;
  constexpr size_t kMaxBytes = 32 << 20, kMinBytes = 1 << 20;
  constexpr int kCopies = 4;
  const MemoryBudget* const budget = memory_budget(device_);
  const size_t bytes =
      budget ? static_cast<size_t>(std::min<uint64_t>(kMaxBytes, budget->room() / 2)) : kMaxBytes;
  if (bytes < kMinBytes) return rate_;
  void* const from = side->allocate_host(bytes);
  if (!from) return rate_;
  std::memset(from, 0, bytes);
  try {
    const Tensor to = make_tensor(device_, {static_cast<int64_t>(bytes)}, DType::kU8);
    std::chrono::steady_clock::time_point begin;
    for (int i = 0; i <= kCopies; ++i) {  // the first one is not counted
      side->copy_beside(to.data(), from, bytes);
      if (i > 0) continue;
      side->wait_for_copies();
      begin = std::chrono::steady_clock::now();
    }
    side->wait_for_copies();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    rate_ = static_cast<double>(bytes) * kCopies / taken.count();
  } catch (...) {
    side->free_host(from);
    throw;
  }
  side->free_host(from);
  return rate_;
}

void WeightStream::run(Exec& ex, const std::shared_ptr<StreamSchedule>& schedule,
                       const std::function<void(Exec&)>& forward) {
  const bool known = std::any_of(schedules_.begin(), schedules_.end(),
                                 [&](const auto& weak) { return weak.lock() == schedule; });
  if (!known) schedules_.push_back(schedule);
  if (ex.planning()) {
    schedule->uses.clear();
    schedule->work_before.clear();
    schedule->turns.clear();
    {
      Run run(ex, *this, *schedule);
      forward(ex);
    }
    schedule->work = work_of(ex);
    if (entered_)
      arrange_late(*schedule);
    else
      settled_ = false;
    return;
  }
  require<InternalError>(schedule->uses.empty() || entered_,
                         "weight stream: a program reads weights that are not on the device");
  Run run(ex, *this, *schedule);
  run.begin();
  forward(ex);
}

bool WeightStream::use(const std::shared_ptr<StreamedStorage>& storage) {
  Run* const run = Run::current();
  if (run) run->use(storage);
  return run != nullptr;
}

}  // namespace rocm_sd
