#include "scaling/group.hpp"

#include <omp.h>

#include <exception>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {
namespace {

// The calling thread computes with so many threads of the CPU while this is alive; 0: as before.
class HostThreads {
 public:
  explicit HostThreads(int threads) : before_(omp_get_max_threads()) {
    if (threads > 0) omp_set_num_threads(threads);
  }
  ~HostThreads() { omp_set_num_threads(before_); }
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;

 private:
  int before_;
};

std::string architecture(Device& device) {
  return device.kind() == DeviceKind::kHost ? "the CPU" : static_cast<GpuDevice&>(device).traits().arch;
}

}  // namespace

// Shared with the thread that draws, which may hang longer than the group lives.
struct Group::Member {
  RankDevice where;
  std::shared_ptr<RankHub> hub;
  std::unique_ptr<ThreadRanks> link;  // null in a group of one
  std::unique_ptr<Pipeline> pipeline;
};

// What one rank does for one request, and how it ended.
struct Group::Call {
  std::shared_ptr<Member> member;
  int rank = 0;
  GenerateRequest request;
  Callbacks callbacks;
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  GenerateResult result;
  std::exception_ptr error;
};

Group::Group(const LoadOptions& options, const std::vector<RankDevice>& devices, const RankPatience& patience,
             const Callbacks& callbacks) {
  std::vector<std::string> names;
  for (const RankDevice& device : devices) {
    names.push_back(device.name);
    name_ += concat(name_.empty() ? "" : "+", device.name);
  }
  hub_ = std::make_shared<RankHub>(names, patience);
  Callbacks others;
  others.cancelled = callbacks.cancelled;
  for (size_t i = 0; i < devices.size(); ++i) {
    auto member = std::make_shared<Member>();
    member->where = devices[i];
    member->hub = hub_;
    if (devices.size() > 1)
      member->link = std::make_unique<ThreadRanks>(
          *hub_, static_cast<int>(i), options.split == "rows" ? Division::kRows : Division::kConditions);
    const HostThreads threads(devices[i].threads);
    member->pipeline = std::make_unique<Pipeline>(
        load_pipeline(options, *devices[i].device, i == 0 ? callbacks : others, member->link.get()));
    members_.push_back(std::move(member));
    const Member &first = *members_.front(), &last = *members_.back();
    const std::string one = architecture(*first.where.device), other = architecture(*last.where.device);
    require<UsageError>(one == other && first.pipeline->info().dtype == last.pipeline->info().dtype,
                        "split: ", options.split, ": ", first.where.name, " is ", one, " and computes in ",
                        first.pipeline->info().dtype, ", ", last.where.name, " is ", other,
                        " and computes in ", last.pipeline->info().dtype,
                        ": one image needs devices of one architecture; --split images takes any");
  }
}

Group::~Group() = default;

Pipeline& Group::first() const { return *members_.front()->pipeline; }

MemoryPlan Group::plan(const GenerateRequest& request) {
  const HostThreads threads(members_.front()->where.threads);
  return first().plan(request);
}

GenerateResult Group::generate(const GenerateRequest& request, const Callbacks& callbacks) {
  if (members_.size() > 1) return generate_together(request, callbacks);
  const HostThreads threads(members_.front()->where.threads);
  return first().generate(request, callbacks);
}

// In a thread of the rank's own. Whatever ends it wakes the others.
void Group::run(Call& call) {
  const std::shared_ptr<RankHub> hub = call.member->hub;
  Callbacks watched = call.callbacks;
  watched.cancelled = [hub, rank = call.rank, asked = call.callbacks.cancelled] {
    hub->beat(rank);
    return hub->failed() || (asked && asked());
  };
  watched.progress = [hub, rank = call.rank, told = call.callbacks.progress](const Progress& p) {
    hub->beat(rank);
    return !told || told(p);
  };
  const auto ended = [&](std::exception_ptr error) {
    const std::lock_guard lock(call.mutex);
    call.error = std::move(error);
    call.member.reset();  // a thread that does not hang must not be the last to let go of its pipeline
    call.done = true;
    call.ended.notify_all();
  };
  try {
    const HostThreads threads(call.member->where.threads);
    call.result = call.member->pipeline->generate(call.request, watched);
    ended(nullptr);
  } catch (const CancelledError&) {
    hub->fail(call.rank, "cancelled", true);
    ended(std::current_exception());
  } catch (const std::exception& e) {
    hub->fail(call.rank, e.what());
    ended(std::current_exception());
  } catch (...) {
    hub->fail(call.rank, "unknown error");
    ended(std::current_exception());
  }
}

GenerateResult Group::generate_together(const GenerateRequest& request, const Callbacks& callbacks) {
  hub_->reset();
  std::vector<std::shared_ptr<Call>> calls;
  for (size_t i = 0; i < members_.size(); ++i) {
    auto call = std::make_shared<Call>();
    call->member = members_[i];
    call->rank = static_cast<int>(i);
    call->request = request;
    if (i == 0) call->callbacks = callbacks;
    calls.push_back(call);
    std::thread([call] { run(*call); }).detach();  // waited for below, unless it hangs
  }
  bool hangs = false;
  for (const auto& call : calls) {
    std::unique_lock lock(call->mutex);
    const auto over = [&] { return call->done || (hub_->failed() && hub_->silent(call->rank)); };
    while (!over()) call->ended.wait_for(lock, std::chrono::milliseconds(50));
    if (call->done) continue;
    hangs = true;
    log().warn("rank {} ({}) hangs; nobody waits for it any longer", call->rank, hub_->name(call->rank));
  }
  const std::optional<int> failed = hub_->failed_rank();
  if (!failed) return std::move(calls.front()->result);
  const Call& first = *calls[static_cast<size_t>(*failed)];
  const bool told = !hangs && first.error && first.done;
  try {
    if (told) std::rethrow_exception(first.error);
  } catch (const DeviceError&) {  // says which of the devices
  }
  throw DeviceError(hub_->failure());
}

}  // namespace rocm_sd
