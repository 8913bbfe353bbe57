// A stand-in for NCCL and RCCL between threads of one process whose device memory is the host's, as emulated
// GPUs' is. As the library does, an exchange waits for the other ranks without an end, unless its
// communicator is ended; messages of a pair of ranks come in order; sizes must agree. Numbers are the
// library's, written from its documentation.
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6;
constexpr int kUint8 = 1;

struct UniqueId {
  char bytes[128];
};

struct World {
  explicit World(int ranks) : count(ranks) {}
  const int count;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> under_way;  // from, to
  bool ended = false;
};

struct Communicator {
  std::shared_ptr<World> world;
  int rank = 0;
};

struct Call {
  Communicator* comm = nullptr;
  const char* from = nullptr;  // null: it receives
  char* to = nullptr;
  size_t bytes = 0;
  int other = 0;
};

std::mutex worlds_mutex;
std::map<std::string, std::shared_ptr<World>> worlds;
int made = 0;

thread_local int depth = 0;
thread_local std::vector<Call> calls;

int send(const Call& call) {
  World& world = *call.comm->world;
  const std::lock_guard lock(world.mutex);
  if (world.ended) return kRemoteError;
  world.under_way[{call.comm->rank, call.other}].emplace_back(call.from, call.from + call.bytes);
  world.changed.notify_all();
  return kSuccess;
}

int receive(const Call& call) {
  World& world = *call.comm->world;
  std::unique_lock lock(world.mutex);
  auto& queue = world.under_way[{call.other, call.comm->rank}];
  world.changed.wait(lock, [&] { return world.ended || !queue.empty(); });
  if (queue.empty()) return kRemoteError;
  const std::vector<char> message = std::move(queue.front());
  queue.pop_front();
  if (message.size() != call.bytes) return kInvalidUsage;
  std::memcpy(call.to, message.data(), message.size());
  return kSuccess;
}

int run(const std::vector<Call>& all) {
  for (const Call& call : all)
    if (call.from)
      if (const int status = send(call)) return status;
  for (const Call& call : all)
    if (!call.from)
      if (const int status = receive(call)) return status;
  return kSuccess;
}

int add(const Call& call, int type) {
  if (!call.comm || type != kUint8 || (!call.from && !call.to)) return kInvalidArgument;
  if (call.other < 0 || call.other >= call.comm->world->count) return kInvalidArgument;
  if (depth == 0) return run({call});
  calls.push_back(call);
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22703;
  return kSuccess;
}

const char* ncclGetErrorString(int) { return "as the stand-in says"; }

int ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard lock(worlds_mutex);
  *id = {};
  const std::string name = "world " + std::to_string(++made);
  std::memcpy(id->bytes, name.data(), name.size());
  return kSuccess;
}

int ncclCommInitRank(Communicator** comm, int count, UniqueId id, int rank) {
  if (rank < 0 || rank >= count) return kInvalidArgument;
  const std::lock_guard lock(worlds_mutex);
  std::shared_ptr<World>& world = worlds[id.bytes];
  if (!world) world = std::make_shared<World>(count);
  if (world->count != count) return kInvalidUsage;
  *comm = new Communicator{world, rank};
  return kSuccess;
}

// Leaks the handle's few bytes: another thread may hold it.
int ncclCommAbort(Communicator* comm) {
  const std::lock_guard lock(comm->world->mutex);
  comm->world->ended = true;
  comm->world->changed.notify_all();
  return kSuccess;
}

int ncclCommGetAsyncError(Communicator*, int* error) {
  *error = kSuccess;
  return kSuccess;
}

int ncclGroupStart() {
  ++depth;
  return kSuccess;
}

int ncclGroupEnd() {
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0) return kSuccess;
  const std::vector<Call> all = std::move(calls);
  calls.clear();
  return run(all);
}

int ncclSend(const void* data, size_t count, int type, int to, Communicator* comm, void*) {
  return add({.comm = comm, .from = static_cast<const char*>(data), .bytes = count, .other = to}, type);
}

int ncclRecv(void* data, size_t count, int type, int from, Communicator* comm, void*) {
  return add({.comm = comm, .to = static_cast<char*>(data), .bytes = count, .other = from}, type);
}

}  // extern "C"
