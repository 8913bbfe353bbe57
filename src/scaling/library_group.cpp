#include "scaling/library_group.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.hpp"
#include "base/log.hpp"
#include "composable_kernels/fused/exchange.hpp"
#include "runtime/tensor.hpp"
#include "runtime/window_host.hpp"
#include "scaling/rank_board.hpp"

namespace rocm_sd {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);
// After a failure: for the ranks that wait on the host, as most do, to end by themselves.
constexpr double kGraceSeconds = 2;
constexpr size_t kTestBytes = size_t{1} << 18;

char test_byte(int from, int to, int round, size_t i) {
  return static_cast<char>((static_cast<size_t>(from * 31 + to * 17 + round * 7) + i * 13) % 251);
}

}  // namespace

// One rank's view.
class LibraryWindows final : public PeerWindows {
 public:
  LibraryWindows(LibraryGroup& group, LibraryGroup::Own& own, HubRanks& ranks)
      : group_(group), own_(own), ranks_(ranks) {}

  ExchangeControl* control() const override { return nullptr; }
  void need(size_t) override {}
  void need_kept(size_t) override {}
  size_t kept_bytes() const override { return 0; }
  uint64_t generation() const override { return 0; }
  size_t bytes() const override { return 0; }
  void meet() override {
    check();
    const char here = 1;
    for (int to = 0; to < ranks_.count(); ++to)
      if (to != ranks_.rank()) ranks_.send(to, &here, sizeof here);
    for (int from = 0; from < ranks_.count(); ++from) {
      char there = 0;
      if (from != ranks_.rank()) ranks_.receive(from, &there, sizeof there);
    }
  }
  void await(uint32_t) override {}
  void check() override {
    if (!group_.aborted_ && !group_.hub_->failed()) return;
    for (int other = 0; other < ranks_.count(); ++other)
      if (other != ranks_.rank()) ranks_.expect(other);  // throws what has failed
    throw DeviceError(concat(group_.way(), ": the exchange of ", own_.who.name, " was ended"));
  }
  void begin() override {
    if (begun_) meet();
    begun_ = true;
  }
  ExchangeCounts counts() const override { return {}; }
  bool by_library() const override { return true; }
  void pass(std::span<const LibraryMessage> sent, std::span<const LibraryMessage> received) override {
    const WindowHost* const device = window_host(*own_.who.device);
    const bool capturing = device && device->capturing();
    require<InternalError>(!capturing || own_.host, own_.who.name, ": has no stream that ", group_.way(),
                           " is captured with");
    if (!capturing) meet();
    group_.enqueue(own_, sent, received);
  }

 private:
  LibraryGroup& group_;
  LibraryGroup::Own& own_;
  HubRanks& ranks_;
  bool begun_ = false;
};

LibraryGroup::LibraryGroup(const std::vector<LibraryRank>& own, const std::shared_ptr<RankHub>& hub)
    : api_(nccl::load_api(own.at(0).device->kind())), hub_(hub) {
  for (const LibraryRank& who : own) own_.push_back({who, library_host(*who.device), nullptr});
}

LibraryGroup::~LibraryGroup() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (watcher_.joinable()) watcher_.join();
  try {
    for (const Own& own : own_) own.who.device->synchronize();
  } catch (const Error& error) {
    log().warn("{}", error.what());
  }
  abort();  // unlike ncclCommDestroy it waits for nobody
}

// Rank 0's, which all take.
nccl::UniqueId LibraryGroup::agree() const {
  nccl::UniqueId id{};
  if (own_[0].who.rank == 0) {
    make_current(own_[0]);
    api_.check(api_.ncclGetUniqueId(&id), "ncclGetUniqueId");
  }
  if (of_one_process()) return id;
  HubRanks link(*hub_, own_[0].who.rank);
  std::vector<nccl::UniqueId> all(static_cast<size_t>(hub_->count()));
  all[static_cast<size_t>(link.rank())] = id;
  std::vector<size_t> ends;
  for (size_t i = 1; i <= all.size(); ++i) ends.push_back(i * sizeof id);
  link.begin();
  all_gather(link, all.data(), ends);
  return all[0];
}

void LibraryGroup::connect(const nccl::UniqueId& id) {
  api_.check(api_.ncclGroupStart(), "ncclGroupStart");
  int status = nccl::kSuccess;
  for (Own& own : own_) {
    make_current(own);
    if (status == nccl::kSuccess)
      status = api_.ncclCommInitRank(&own.communicator, hub_->count(), id, own.who.rank);
  }
  const int ended = api_.ncclGroupEnd();
  api_.check(status, "ncclCommInitRank");
  api_.check(ended, "ncclGroupEnd");
}

// In a thread, for the library waits for all ranks without an end.
void LibraryGroup::connect_within(double seconds) {
  struct Outcome {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
  };
  const nccl::UniqueId id = agree();
  auto outcome = std::make_shared<Outcome>();
  std::thread([outcome, self = shared_from_this(), id] {
    std::exception_ptr error;
    try {
      self->connect(id);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(outcome->mutex);
    outcome->error = error;
    outcome->done = true;
    outcome->changed.notify_all();
  }).detach();
  std::unique_lock lock(outcome->mutex);
  const bool in_time = outcome->changed.wait_for(
      lock, std::chrono::duration<double>(seconds > 0 ? seconds : 1e9), [&] { return outcome->done; });
  require<DeviceError>(in_time, api_.version, " has not brought all ", hub_->count(),
                       " ranks together within ", seconds, " s");
  if (outcome->error) std::rethrow_exception(outcome->error);
}

void LibraryGroup::enqueue(Own& own, std::span<const LibraryMessage> sent,
                           std::span<const LibraryMessage> received) {
  require<DeviceError>(!aborted_, api_.version, ": the exchange of ", own.who.name, " was ended");
  void* const stream = own.host ? own.host->library_stream() : nullptr;
  api_.check(api_.ncclGroupStart(), "ncclGroupStart");
  int status = nccl::kSuccess;
  for (const LibraryMessage& m : sent)
    if (status == nccl::kSuccess)
      status = api_.ncclSend(m.data, m.bytes, nccl::kUint8, m.rank, own.communicator, stream);
  for (const LibraryMessage& m : received)
    if (status == nccl::kSuccess)
      status = api_.ncclRecv(m.data, m.bytes, nccl::kUint8, m.rank, own.communicator, stream);
  const int ended = api_.ncclGroupEnd();
  api_.check(status, "ncclSend, ncclRecv");
  api_.check(ended, "ncclGroupEnd");
}

// Two rounds from each rank to each other one, with bytes of their own.
std::string LibraryGroup::test() {
  const int count = hub_->count();
  struct Buffers {
    Tensor sent, got;
    std::vector<LibraryMessage> out, in;
  };
  for (int round = 0; round < 2; ++round) {
    std::vector<Buffers> buffers;
    for (const Own& own : own_) {
      Device& device = *own.who.device;
      Buffers& b = buffers.emplace_back();
      std::vector<char> bytes;
      for (int to = 0; to < count; ++to)
        for (size_t i = 0; i < kTestBytes; ++i) bytes.push_back(test_byte(own.who.rank, to, round, i));
      b.sent = make_tensor(device, {count, static_cast<int64_t>(kTestBytes)}, DType::kU8);
      b.got = make_tensor(device, b.sent.shape(), DType::kU8);
      device.copy_to_device(b.sent.data(), bytes.data(), bytes.size());
      for (int other = 0; other < count; ++other) {
        if (other == own.who.rank) continue;
        const size_t at = static_cast<size_t>(other) * kTestBytes;
        b.out.push_back({other, static_cast<char*>(b.sent.data()) + at, kTestBytes});
        b.in.push_back({other, static_cast<char*>(b.got.data()) + at, kTestBytes});
      }
    }
    api_.check(api_.ncclGroupStart(), "ncclGroupStart");
    for (size_t i = 0; i < own_.size(); ++i) enqueue(own_[i], buffers[i].out, buffers[i].in);
    api_.check(api_.ncclGroupEnd(), "ncclGroupEnd");
    for (size_t i = 0; i < own_.size(); ++i) {
      std::vector<char> bytes(kTestBytes * static_cast<size_t>(count));
      own_[i].who.device->copy_to_host(bytes.data(), buffers[i].got.data(), bytes.size());
      for (int from = 0; from < count; ++from)
        for (size_t j = 0; from != own_[i].who.rank && j < kTestBytes; ++j)
          if (bytes[static_cast<size_t>(from) * kTestBytes + j] !=
              test_byte(from, own_[i].who.rank, round, j))
            return concat("other bytes came from ", hub_->name(from), " to ", own_[i].who.name);
    }
  }
  return "";
}

std::shared_ptr<LibraryGroup> LibraryGroup::make(const std::vector<LibraryRank>& own,
                                                 const RankPatience& patience,
                                                 const std::shared_ptr<RankHub>& hub) {
  for (const LibraryRank& who : own) {
    require<UsageError>(who.device->kind() != DeviceKind::kHost, "ROCM_SD_EXCHANGE=nccl: ", who.name,
                        " is no GPU");
    require<UsageError>(who.device->kind() == own[0].device->kind(), "ROCM_SD_EXCHANGE=nccl: ", own[0].name,
                        " and ", who.name, " have different drivers");
  }
  std::shared_ptr<LibraryGroup> group(new LibraryGroup(own, hub));
  group->connect_within(patience.first);
  const std::string problem = group->test();
  require<DeviceError>(problem.empty(), group->way(), ": ", problem);
  group->watcher_ = std::thread([raw = group.get()] { raw->watch(); });
  if (own[0].rank == 0) log().info("exchange: by {}", group->way());
  return group;
}

std::unique_ptr<PeerWindows> LibraryGroup::windows(HubRanks& ranks) {
  const auto own = std::ranges::find(own_, ranks.rank(), [](const Own& o) { return o.who.rank; });
  require<InternalError>(own != own_.end(), "exchange: rank ", ranks.rank(), " is of another process");
  return std::make_unique<LibraryWindows>(*this, *own, ranks);
}

void LibraryGroup::begin_call() {
  require<DeviceError>(!aborted_, api_.version, ": an earlier failure has ended its communicators");
  const std::lock_guard lock(mutex_);
  in_call_ = true;
}

void LibraryGroup::end_call(bool hangs) {
  {
    const std::lock_guard lock(mutex_);
    in_call_ = false;
  }
  if (hangs) abort();
}

void LibraryGroup::watch() {
  double failed_at = 0;
  std::unique_lock lock(mutex_);
  while (!ending_) {
    changed_.wait_for(lock, kLook);
    if (!in_call_) {
      failed_at = 0;
      continue;
    }
    lock.unlock();
    look_for_failures();
    const double now = monotonic_seconds();
    if (!hub_->failed())
      failed_at = 0;
    else if (failed_at == 0)
      failed_at = now;
    else if (now - failed_at > kGraceSeconds)
      abort();
    lock.lock();
  }
}

void LibraryGroup::look_for_failures() {
  if (hub_->failed() || aborted_) return;
  for (const Own& own : own_) {
    int error = nccl::kSuccess;
    const int status = api_.ncclCommGetAsyncError(own.communicator, &error);
    if (status == nccl::kSuccess) error = error == nccl::kInProgress ? nccl::kSuccess : error;
    if (status != nccl::kSuccess || error != nccl::kSuccess)
      return hub_->fail(own.who.rank, own.who.rank,
                        concat(api_.version, ": ", api_.ncclGetErrorString(status ? status : error)));
  }
  for (int rank = 0; rank < hub_->count(); ++rank) {
    if (!of_one_process() && rank == own_[0].who.rank) continue;
    if (const std::string reason = hub_->why_lost(rank); !reason.empty())
      return hub_->fail(of_one_process() ? rank : own_[0].who.rank, rank, reason);
  }
}

void LibraryGroup::abort() noexcept {
  if (aborted_.exchange(true)) return;
  for (Own& own : own_) {
    if (!own.communicator) continue;
    try {
      make_current(own);
    } catch (const Error& error) {
      log().warn("{}", error.what());
    }
    api_.ncclCommAbort(own.communicator);
  }
}

}  // namespace rocm_sd
