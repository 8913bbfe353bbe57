#include "scaling/mpi_post.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>

#include "base/error.hpp"
#include "scaling/mpi_api.hpp"
#include "scaling/rank_board.hpp"

namespace rocm_sd {
namespace {

constexpr int kHeadTag = 24071, kBodyTag = 24072;
constexpr size_t kPieceBytes = size_t{256} << 20;  // MPI counts in int
constexpr double kTickSeconds = 0.25;
constexpr double kLastSeconds = 1;  // for what is under way when it ends

struct Outgoing {
  int to = 0;
  Parcel parcel;
  std::vector<mpi::Request> requests;
};

struct Incoming {
  ParcelHead head;
  std::vector<char> body;
  std::vector<mpi::Request> requests;
  bool has_head = false;
};

}  // namespace

// Shared with the thread, which may be stuck in MPI_Init for longer than the post lives.
struct MpiPost::State {
  int rank = 0, count = 0;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<int, Parcel>> outbox;
  std::vector<size_t> under_way;  // bytes
  std::string problem, usage, version;
  Events events;
  bool initialised = false, started = false, stopping = false, finish = false, ended = false;
  std::atomic<int> waiting{0};
  std::thread thread;

  // Of the thread alone.
  const mpi::Api* api = nullptr;
  std::list<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  std::vector<char> broken;

  void set_up();
  void check(int status, const char* call) const {
    if (status != mpi::kSuccess) throw DeviceError(concat("MPI: ", call, ": ", api->reason(status)));
  }
  template <class Post>
  int post_body(char* data, size_t bytes, std::vector<mpi::Request>& requests, const Post& post) const;
  bool all_done(std::vector<mpi::Request>& requests, int& status) const;
  void give_up(int other, int status, const char* call);
  int start_sending(Outgoing& out) const;
  void send_out();
  bool settle();
  void expect(int from);
  bool take_from(int from);
  bool take_in();
  void work();
};

void MpiPost::State::set_up() {
  api = &mpi::load_api();
  int there = 0, provided = 0;
  check(api->MPI_Initialized(&there), "MPI_Initialized");
  require<DeviceError>(!there, "MPI: this program has initialised MPI itself; ranks do it for themselves");
  check(api->MPI_Init_thread(nullptr, nullptr, mpi::kThreadSerialized, &provided), "MPI_Init_thread");
  check(api->MPI_Comm_set_errhandler(api->world, api->errors_return), "MPI_Comm_set_errhandler");
  int own = 0, all = 0;
  check(api->MPI_Comm_rank(api->world, &own), "MPI_Comm_rank");
  check(api->MPI_Comm_size(api->world, &all), "MPI_Comm_size");
  require<UsageError>(own == rank && all == count, "ranks: MPI has started rank ", own, " of ", all,
                      ", the environment tells of rank ", rank, " of ", count,
                      ": start the ranks with mpirun of the same Open MPI");
  under_way.resize(static_cast<size_t>(count), 0);
  incoming.resize(static_cast<size_t>(count));
  broken.resize(static_cast<size_t>(count), 0);
}

template <class Post>
int MpiPost::State::post_body(char* data, size_t bytes, std::vector<mpi::Request>& requests,
                              const Post& post) const {
  int status = mpi::kSuccess;
  for (size_t at = 0; at < bytes && status == mpi::kSuccess; at += kPieceBytes) {
    requests.push_back(mpi::kNoRequest);
    status = post(data + at, static_cast<int>(std::min(kPieceBytes, bytes - at)), &requests.back());
  }
  return status;
}

// Those that are done leave the list.
bool MpiPost::State::all_done(std::vector<mpi::Request>& requests, int& status) const {
  std::erase_if(requests, [&](mpi::Request& request) {
    int done = 0;
    if (const int told = api->MPI_Test(&request, &done, nullptr); told != mpi::kSuccess) status = told;
    return done != 0;
  });
  return requests.empty();
}

// The rank's requests stay as they are: MPI may still write to what they name.
void MpiPost::State::give_up(int other, int status, const char* call) {
  if (broken[static_cast<size_t>(other)]) return;
  broken[static_cast<size_t>(other)] = 1;
  events.broken(other, concat("MPI: ", call, ": ", api->reason(status)));
}

int MpiPost::State::start_sending(Outgoing& out) const {
  out.requests.push_back(mpi::kNoRequest);
  const int status = api->MPI_Isend(&out.parcel.head, sizeof(ParcelHead), api->byte, out.to, kHeadTag,
                                    api->world, &out.requests.back());
  if (status != mpi::kSuccess || out.parcel.head.bytes <= ParcelHead::kInline) return status;
  return post_body(out.parcel.body.data(), out.parcel.body.size(), out.requests,
                   [&](char* data, int bytes, mpi::Request* request) {
                     return api->MPI_Isend(data, bytes, api->byte, out.to, kBodyTag, api->world, request);
                   });
}

void MpiPost::State::send_out() {
  std::deque<std::pair<int, Parcel>> batch;
  {
    const std::lock_guard lock(mutex);
    batch.swap(outbox);
  }
  for (auto& [to, parcel] : batch) {
    if (broken[static_cast<size_t>(to)]) continue;
    Outgoing& out = outgoing.emplace_back();
    out.to = to;
    out.parcel = std::move(parcel);
    if (const int status = start_sending(out); status != mpi::kSuccess) give_up(to, status, "MPI_Isend");
  }
}

bool MpiPost::State::settle() {
  const size_t before = outgoing.size();
  outgoing.remove_if([&](Outgoing& out) {
    if (broken[static_cast<size_t>(out.to)]) return false;
    int status = mpi::kSuccess;
    const bool done = all_done(out.requests, status);
    if (status != mpi::kSuccess) give_up(out.to, status, "MPI_Test");
    if (!done || status != mpi::kSuccess) return false;
    const std::lock_guard lock(mutex);
    under_way[static_cast<size_t>(out.to)] -= sizeof(ParcelHead) + out.parcel.head.bytes;
    return true;
  });
  return outgoing.size() < before;
}

void MpiPost::State::expect(int from) {
  Incoming& in = incoming[static_cast<size_t>(from)];
  in.has_head = false;
  in.requests.assign(1, mpi::kNoRequest);
  const int status = api->MPI_Irecv(&in.head, sizeof(ParcelHead), api->byte, from, kHeadTag, api->world,
                                    &in.requests.back());
  if (status != mpi::kSuccess) give_up(from, status, "MPI_Irecv");
}

// Whatever has come from one rank.
bool MpiPost::State::take_from(int from) {
  Incoming& in = incoming[static_cast<size_t>(from)];
  bool some = false;
  for (int status = mpi::kSuccess; !broken[static_cast<size_t>(from)] && all_done(in.requests, status);) {
    if (status != mpi::kSuccess) {
      give_up(from, status, "MPI_Test");
      break;
    }
    some = true;
    if (!in.has_head && in.head.bytes > ParcelHead::kInline) {
      in.has_head = true;
      in.body.resize(in.head.bytes);
      status = post_body(in.body.data(), in.body.size(), in.requests,
                         [&](char* data, int bytes, mpi::Request* request) {
                           return api->MPI_Irecv(data, bytes, api->byte, from, kBodyTag, api->world, request);
                         });
      if (status != mpi::kSuccess) give_up(from, status, "MPI_Irecv");
      continue;
    }
    Parcel parcel{in.head, std::move(in.body)};
    if (!in.has_head) parcel.body.assign(in.head.text, in.head.text + in.head.bytes);
    in.body.clear();
    expect(from);
    events.taken(from, std::move(parcel));
  }
  return some;
}

bool MpiPost::State::take_in() {
  bool some = false;
  for (int from = 0; from < count; ++from)
    if (from != rank) some |= take_from(from);
  return some;
}

void MpiPost::State::work() {
  for (int from = 0; from < count; ++from)
    if (from != rank) expect(from);
  double last_tick = monotonic_seconds(), stop_at = 0;
  for (int idle = 0;;) {
    send_out();
    const bool some = settle() | take_in();
    const double now = monotonic_seconds();
    if (now - last_tick > kTickSeconds) {
      events.tick(now - last_tick);
      last_tick = now;
    }
    idle = some ? 0 : idle + 1;
    if (idle < 64) continue;  // the next message often follows at once
    std::unique_lock lock(mutex);
    if (stopping && stop_at == 0) stop_at = now + kLastSeconds;
    if (stopping && outbox.empty() && (outgoing.empty() || now > stop_at)) return;
    if (!outbox.empty()) continue;
    const bool busy = waiting > 0 || !outgoing.empty();
    changed.wait_for(lock, std::chrono::microseconds(busy ? 30 : 2000));
  }
}

void MpiPost::run(const std::shared_ptr<State>& state) {
  State& s = *state;
  const auto fail = [&](const std::exception& e) {
    const std::lock_guard lock(s.mutex);
    s.problem = e.what();
    s.changed.notify_all();
  };
  try {
    s.set_up();
    {
      std::unique_lock lock(s.mutex);
      s.version = s.api->version;
      s.initialised = true;
      s.changed.notify_all();
      s.changed.wait(lock, [&] { return s.started || s.stopping; });
    }
    if (s.started) s.work();
    if (s.finish) s.api->MPI_Finalize();
  } catch (const UsageError& e) {
    {
      const std::lock_guard lock(s.mutex);
      s.usage = e.what();
    }
    fail(e);
  } catch (const std::exception& e) {
    fail(e);
  }
  const std::lock_guard lock(s.mutex);
  s.ended = true;
  s.changed.notify_all();
}

MpiPost::MpiPost(int rank, int count, double seconds) : state_(std::make_shared<State>()) {
  state_->rank = rank;
  state_->count = count;
  std::thread([state = state_] { run(state); }).detach();  // waited for below, unless MPI hangs
  std::unique_lock lock(state_->mutex);
  const bool in_time = state_->changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    return state_->initialised || !state_->problem.empty();
  });
  require<UsageError>(state_->usage.empty(), state_->usage);
  require<DeviceError>(state_->problem.empty(), state_->problem);
  require<DeviceError>(in_time, "ranks: MPI has not brought all ", count, " ranks together within ", seconds,
                       " s");
}

MpiPost::~MpiPost() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  // MPI_Finalize waits for the others, which have said that they end, too, and on a busy machine for mpirun.
  const std::chrono::seconds patience(state_->finish ? 60 : 5);
  state_->changed.wait_for(lock, patience, [&] { return state_->ended; });
}

void MpiPost::start(const Events& events) {
  const std::lock_guard lock(state_->mutex);
  state_->events = events;
  state_->started = true;
  state_->changed.notify_all();
}

std::string MpiPost::version() const {
  const std::lock_guard lock(state_->mutex);
  return state_->version;
}

void MpiPost::send(int to, Parcel&& parcel) {
  parcel.head.bytes = parcel.body.size();
  if (parcel.body.size() <= ParcelHead::kInline)
    std::memcpy(parcel.head.text, parcel.body.data(), parcel.body.size());
  const std::lock_guard lock(state_->mutex);
  state_->under_way[static_cast<size_t>(to)] += sizeof(ParcelHead) + parcel.body.size();
  state_->outbox.emplace_back(to, std::move(parcel));
  state_->changed.notify_all();
}

size_t MpiPost::under_way(int to) const {
  const std::lock_guard lock(state_->mutex);
  return state_->under_way[static_cast<size_t>(to)];
}

void MpiPost::hurry(bool on) {
  state_->waiting += on ? 1 : -1;
  if (on) state_->changed.notify_all();
}

void MpiPost::finish(bool well) {
  const std::lock_guard lock(state_->mutex);
  state_->finish = well;
}

std::string MpiPost::problem() const {
  const std::lock_guard lock(state_->mutex);
  return state_->problem;
}

}  // namespace rocm_sd
