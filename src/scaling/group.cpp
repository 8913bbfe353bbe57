#include "scaling/group.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "composable_kernels/fused/exchange.hpp"
#include "runtime/gpu.hpp"
#include "scaling/exchange_group.hpp"
#include "scaling/request_key.hpp"
#include "scaling/shared_hub.hpp"

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

}  // namespace

// Shared with the thread that draws, which may hang longer than the group lives.
struct Group::Member {
  RankDevice where;
  std::shared_ptr<RankHub> hub;
  int rank = 0;
  std::unique_ptr<HubRanks> link;        // null in a group of one
  std::shared_ptr<ExchangeGroup> peers;  // may be null
  std::unique_ptr<PeerWindows> windows;
  std::unique_ptr<Pipeline> pipeline;
  MessageEvent::Clock::time_point profile_begin;
};

// What one rank does for one request, and how it ended.
struct Group::Call {
  std::shared_ptr<Member> member;
  int rank = 0;
  GenerateRequest request;
  Callbacks callbacks;
  std::mutex mutex;
  std::condition_variable ended;
  bool alone_in_process = false;
  bool done = false;
  GenerateResult result;
  std::exception_ptr error;
};

Group::Group(const LoadOptions& options, const std::vector<RankDevice>& devices, const RankPatience& patience,
             const Callbacks& callbacks)
    : divides_(devices.size() > 1), patience_(patience) {
  std::vector<std::string> names;
  for (const RankDevice& device : devices) {
    names.push_back(device.name);
    name_ += concat(name_.empty() ? "" : "+", device.name);
  }
  hub_ = std::make_shared<SharedHub>(names, patience);
  if (divides_) {
    std::vector<Device*> all;
    for (const RankDevice& device : devices) all.push_back(device.device);
    peers_ = make_exchange_group(names, all, patience, hub_);
  }
  Callbacks others;
  others.cancelled = callbacks.cancelled;
  for (size_t i = 0; i < devices.size(); ++i) {
    add(options, devices[i], static_cast<int>(i), i == 0 ? callbacks : others);
    const Member &first = *members_.front(), &last = *members_.back();
    const std::string one = device_architecture(*first.where.device),
                      other = device_architecture(*last.where.device);
    require<UsageError>(one == other && first.pipeline->info().dtype == last.pipeline->info().dtype,
                        "split: ", options.split, ": ", first.where.name, " is ", one, " and computes in ",
                        first.pipeline->info().dtype, ", ", last.where.name, " is ", other,
                        " and computes in ", last.pipeline->info().dtype,
                        ": one image needs devices of one architecture; --split images takes any");
  }
}

Group::Group(const LoadOptions& options, const RankDevice& device, std::shared_ptr<RankHub> hub, int rank,
             const RankPatience& patience, const Callbacks& callbacks)
    : divides_(hub->count() > 1 && parse_split(options.split).division),
      processes_(true),
      patience_(patience),
      hub_(std::move(hub)) {
  for (int i = 0; divides_ && i < hub_->count(); ++i) name_ += concat(i ? "+" : "", hub_->name(i));
  if (!divides_) name_ = device.name;
  if (divides_) peers_ = make_exchange_group(device.name, *device.device, patience, hub_, rank);
  add(options, device, rank, callbacks);
}

void Group::check(const GenerateRequest& request, GenerateResult& displaced) {
  const auto exactly = [&](bool on) {
    for (const auto& member : members_) member->link->draw_exactly(on);
  };
  exactly(true);
  const GenerateResult exact = generate_together(request, {});
  exactly(false);
  double squares = 0, values = 0;
  for (size_t i = 0; i < displaced.pictures.size(); ++i) {
    const auto &a = displaced.pictures[i].image.rgb, &b = exact.pictures.at(i).image.rgb;
    for (size_t j = 0; j < a.size(); ++j) squares += std::pow(int{a[j]} - int{b[j]}, 2);
    values += static_cast<double>(a.size());
  }
  const std::string distance =
      squares > 0 ? fmt::format("{:.1f} dB from", 10 * std::log10(255.0 * 255.0 * values / squares))
                  : "equal to";
  if (values > 0)
    displaced.warnings.push_back(concat("displaced rows: ", distance, " the exact image (PSNR)"));
}

void Group::add(const LoadOptions& options, const RankDevice& device, int rank, const Callbacks& callbacks) {
  checks_ = parse_split(options.split).checks;
  auto member = std::make_shared<Member>();
  member->where = device;
  member->hub = hub_;
  member->rank = rank;
  if (divides_) member->link = std::make_unique<HubRanks>(*hub_, rank, *parse_split(options.split).division);
  if (peers_) member->windows = peers_->windows(*member->link);
  // Displaced rows read what came in the call before: messages and windows keep it, libraries do not.
  if (member->windows && member->windows->by_library() && member->link->displaces()) member->windows.reset();
  if (member->windows) {
    member->peers = peers_;
    member->link->use_windows(member->windows.get());
  }
  const HostThreads threads(device.threads);
  member->pipeline =
      std::make_unique<Pipeline>(load_pipeline(options, *device.device, callbacks, member->link.get()));
  members_.push_back(std::move(member));
}

Group::~Group() = default;

Pipeline& Group::first() const { return *members_.front()->pipeline; }

void Group::enable_profiling() {
  for (const auto& member : members_) {
    member->profile_begin = MessageEvent::Clock::now();
    member->pipeline->enable_profiling();
    if (member->link) member->link->keep_messages();
  }
}

std::vector<TracedRank> Group::traced() const {
  std::vector<TracedRank> out;
  for (const auto& member : members_)
    out.push_back({.name = member->where.name,
                   .pipeline = member->pipeline.get(),
                   .begin = member->profile_begin,
                   .messages = member->link ? &member->link->messages() : nullptr});
  return out;
}

std::vector<RankTraffic> Group::traffic() const {
  const std::lock_guard lock(traffic_mutex_);
  return traffic_;
}

// Of ranks none of which hangs.
void Group::note_traffic() {
  const std::lock_guard lock(traffic_mutex_);
  traffic_.clear();
  for (const auto& member : members_) {
    RankTraffic& rank = traffic_.emplace_back(member->link->traffic());
    if (!member->windows) continue;
    const ExchangeCounts stored = member->windows->counts();
    rank.messages += stored.messages;
    rank.bytes += stored.sent_bytes;
    rank.received_bytes += stored.received_bytes;
    rank.receive_seconds += static_cast<double>(stored.waited) * 1e-9;
  }
}

MemoryPlan Group::plan(const GenerateRequest& request) {
  const HostThreads threads(members_.front()->where.threads);
  MemoryPlan plan = first().plan(request);
  if (members_.size() < 2) return plan;
  const Division division = members_.front()->link->division();
  if (division != Division::kLayers && division != Division::kTensors) return plan;
  // Each rank has weights of its own: the largest plan, and every rank's share.
  std::vector<DeviceMemory> all;
  for (const auto& member : members_) {
    const MemoryPlan own = member->pipeline->plan(request);
    all.push_back(own.devices.at(0));
    all.back().device = member->where.name;
    if (own.total() > plan.total()) plan = own;
  }
  plan.devices = std::move(all);
  return plan;
}

GenerateResult Group::generate(const GenerateRequest& request, const Callbacks& callbacks) {
  if (divides_) {
    GenerateResult result = generate_together(request, callbacks);
    if (checks_) check(request, result);
    return result;
  }
  if (watches_) return generate_watched(request, callbacks);
  const HostThreads threads(members_.front()->where.threads);
  return first().generate(request, callbacks);
}

// In a thread of the rank's own. Whatever ends it wakes the others.
void Group::run(Call& call) {
  const std::shared_ptr<RankHub> hub = call.member->hub;
  const std::shared_ptr<ExchangeGroup> peers = call.member->peers;
  const auto fail = [&](const char* reason, bool cancelled = false) {
    hub->fail(call.rank, call.rank, reason, cancelled);
    if (peers) peers->stop();
  };
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
  } catch (const UsageError& e) {
    // Of processes every one finds the same fault in the same request; of threads the others are woken.
    if (!call.alone_in_process) fail(e.what());
    ended(std::current_exception());
  } catch (const CancelledError&) {
    fail("cancelled", true);
    ended(std::current_exception());
  } catch (const std::exception& e) {
    fail(e.what());
    ended(std::current_exception());
  } catch (...) {
    fail("unknown error");
    ended(std::current_exception());
  }
}

namespace {

// When a thread that draws alone was last seen.
struct SignOfLife {
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::rep> last = Clock::now().time_since_epoch().count();
  std::atomic<bool> samples = false, given_up = false;

  void beat() { last = Clock::now().time_since_epoch().count(); }
  double silent_seconds() const {
    return std::chrono::duration<double>(Clock::now().time_since_epoch() - Clock::duration(last)).count();
  }
};

}  // namespace

GenerateResult Group::generate_watched(const GenerateRequest& request, const Callbacks& callbacks) {
  hub_->begin_call(0);
  const auto life = std::make_shared<SignOfLife>();
  auto call = std::make_shared<Call>();
  call->member = members_.front();
  call->request = request;
  call->callbacks = callbacks;
  // Whoever was given up and comes back calls nobody.
  call->callbacks.cancelled = [life, asked = callbacks.cancelled] {
    life->beat();
    return life->given_up || (asked && asked());
  };
  call->callbacks.progress = [life, told = callbacks.progress](const Progress& p) {
    life->beat();
    if (p.stage == "sample") life->samples = true;
    return !life->given_up && (!told || told(p));
  };
  std::thread([call] { run(*call); }).detach();  // waited for below, unless it hangs
  std::unique_lock lock(call->mutex);
  // Before the first step come plans and kernels, during which nothing is heard of a device that works.
  const double first = std::max(patience_.alone, RankPatience().first);
  const auto limit = [&] { return life->samples ? patience_.alone : first; };
  while (!call->done && life->silent_seconds() <= limit())
    call->ended.wait_for(lock, std::chrono::milliseconds(50));
  if (call->done) {
    if (call->error) std::rethrow_exception(call->error);
    return std::move(call->result);
  }
  life->given_up = true;
  throw DeviceError(concat(name_, ": no sign of life for ", limit(), " s; nobody waits for it any longer"));
}

GenerateRequest Group::agree_about(const GenerateRequest& request) const {
  Ranks& link = *members_.front()->link;
  struct Told {
    uint64_t key;
    int64_t seed, variation_seed;
  };
  GenerateRequest seedless = request;
  seedless.seed = seedless.variation_seed = 0;
  const auto own = static_cast<size_t>(link.rank());
  std::vector<Told> all(static_cast<size_t>(link.count()));
  all[own] = {request_key(seedless), request.seed, request.variation_seed};
  std::vector<size_t> ends;
  for (size_t i = 1; i <= all.size(); ++i) ends.push_back(i * sizeof(Told));
  link.begin();
  try {
    all_gather(link, all.data(), ends);
  } catch (const AttemptOver&) {
    throw DeviceError("ranks: out of step: the ranks have drawn different numbers of images");
  }
  for (size_t i = 1; i < all.size(); ++i)
    require<UsageError>(all[i].key == all[0].key, "ranks: rank ", i, " (", hub_->name(static_cast<int>(i)),
                        ") was asked for another image than rank 0: all ranks are started with the same "
                        "options");
  GenerateRequest agreed = request;
  agreed.seed = all[0].seed;
  agreed.variation_seed = all[0].variation_seed;
  return agreed;
}

GenerateResult Group::generate_together(const GenerateRequest& request, const Callbacks& callbacks) {
  hub_->begin_call(members_.front()->rank);
  if (peers_) peers_->begin_call();
  std::vector<std::shared_ptr<Call>> calls;
  for (size_t i = 0; i < members_.size(); ++i) {
    auto call = std::make_shared<Call>();
    call->member = members_[i];
    call->rank = members_[i]->rank;
    call->alone_in_process = processes_;
    call->request = processes_ ? agree_about(request) : request;
    call->member->link->forget_traffic();
    if (i == 0) call->callbacks = callbacks;
    calls.push_back(call);
    if (processes_)
      run(*call);
    else
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
  hub_->end_call(members_.front()->rank);
  if (peers_) peers_->end_call(hangs);
  if (!hangs && !hub_->failed()) note_traffic();
  Call& own = *calls.front();
  const std::optional<int> failed = hub_->failed_rank();
  if (!failed && own.error) std::rethrow_exception(own.error);
  if (!failed) {
    if (own.rank > 0) own.result.pictures.clear();
    return std::move(own.result);
  }
  const auto first =
      std::find_if(calls.begin(), calls.end(), [&](const auto& c) { return c->rank == *failed; });
  const bool told = !hangs && first != calls.end() && (*first)->error && (*first)->done;
  try {
    if (told) std::rethrow_exception((*first)->error);
  } catch (const DeviceError&) {     // below, with the rank's name
  } catch (const CancelledError&) {  // so a rank ends that the others have given up
  }
  require<CancelledError>(!hub_->cancelled(), "cancelled");
  throw DeviceError(hub_->failure());
}

}  // namespace rocm_sd
