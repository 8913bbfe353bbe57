#include "scaling/rank_board.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

constexpr uint64_t kMagic = 0x726f636d73643034;  // rises with the layout
// A ring holds what is under way; more of it saves waiting, not more. Containers have 64 MiB in /dev/shm.
constexpr size_t kMaxRingBytes = size_t{4} << 20, kMinRingBytes = size_t{64} << 10,
                 kAllRingBytes = size_t{48} << 20;

static_assert(std::atomic<double>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint8_t>::is_always_lock_free);

size_t stride(size_t ring_bytes) { return sizeof(RankRing) + ring_bytes; }
size_t board_bytes(int count, size_t ring_bytes) {
  return sizeof(RankBoard) + static_cast<size_t>(count) * static_cast<size_t>(count) * stride(ring_bytes);
}

size_t ring_bytes_for(int count) {
  const size_t each = kAllRingBytes / (static_cast<size_t>(count) * static_cast<size_t>(count));
  return std::clamp(std::bit_floor(each), kMinRingBytes, kMaxRingBytes);
}

// A lock on one byte of the file, which belongs to the open file: it goes when the process does, even where
// nobody has waited for it yet.
struct flock lock_of(int rank, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

std::string system_error() { return std::strerror(errno); }

}  // namespace

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// FUTEX_WAIT without FUTEX_PRIVATE_FLAG works between processes (futex(2)).
void ring_bell(RankSlot& slot) {
  slot.bell.fetch_add(1);
  if (slot.asleep.load())
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&slot.bell), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

bool wait_for_bell(RankSlot& slot, uint32_t seen) {
  const timespec tenth{0, 100'000'000};
  slot.asleep.store(1);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&slot.bell), FUTEX_WAIT, seen, &tenth, nullptr, 0);
  slot.asleep.store(0);
  return slot.bell != seen;
}

std::string board_path(const std::string& job) {
  return concat("/dev/shm/rocm-sd-", static_cast<int64_t>(::geteuid()), "-", job);
}

BoardMemory::BoardMemory(int count) {
  const size_t ring_bytes = ring_bytes_for(count);
  bytes_ = board_bytes(count, ring_bytes);
  map(bytes_);
  lay_out(count, ring_bytes);
}

BoardMemory::BoardMemory(const std::string& path, int rank, int count, double seconds) {
  const double until = monotonic_seconds() + seconds;
  const auto wait = [&](const std::string& whom) {
    if (monotonic_seconds() >= until) {
      if (rank == 0) ::unlink(path.c_str());
      throw DeviceError(concat("ranks: ", whom, " has not come within ", seconds, " s (", path, ")"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  if (rank == 0)
    make_file(path, count);
  else
    while (!open_file(path, rank, count)) wait("rank 0");
  RankSlot& own = slot(rank);
  own.process = static_cast<int32_t>(::getpid());
  own.beat = monotonic_seconds();
  own.idle = 1;
  own.joined = 1;
  for (int other = 0; other < count; ++other)
    while (!slot(other).joined) wait(concat("rank ", other, " of ", count));
  if (rank == 0) ::unlink(path.c_str());
}

void BoardMemory::make_file(const std::string& path, int count) {
  const std::string draft = concat(path, ".", static_cast<int64_t>(::getpid()));
  file_ = ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  require<DeviceError>(file_ >= 0, "ranks: cannot make ", draft, ": ", system_error());
  // A container's /dev/shm may be small, and memory that is short would show as a crash later.
  size_t ring_bytes = ring_bytes_for(count);
  int refused = 0;
  for (;; ring_bytes /= 2) {
    bytes_ = board_bytes(count, ring_bytes);
    refused = ::posix_fallocate(file_, 0, static_cast<off_t>(bytes_));
    if (refused == 0 || ring_bytes <= kMinRingBytes) break;
  }
  if (refused) ::unlink(draft.c_str());
  require<DeviceError>(refused == 0, "ranks: /dev/shm has not the ", bytes_, " bytes that ", count,
                       " ranks need (", std::strerror(refused), "); a container gets more with --shm-size");
  struct flock lock = lock_of(0, F_WRLCK);
  ::fcntl(file_, F_OFD_SETLK, &lock);
  map(bytes_);
  lay_out(count, ring_bytes);
  // In place of what a job of this name has left, if it was killed before all had come.
  if (::rename(draft.c_str(), path.c_str()) != 0) {
    const std::string reason = system_error();
    ::unlink(draft.c_str());
    throw DeviceError(concat("ranks: cannot make ", path, ": ", reason));
  }
}

// False: it is not there yet, or that of an earlier job.
bool BoardMemory::open_file(const std::string& path, int rank, int count) {
  file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  const auto close = [&] {
    if (board_) ::munmap(board_, bytes_);
    board_ = nullptr;
    ::close(file_);
    file_ = -1;
    return false;
  };
  if (file_ < 0) return false;
  struct stat info{};
  struct flock first = lock_of(0, F_WRLCK);
  if (::fstat(file_, &info) != 0 || info.st_uid != ::geteuid() || ::fcntl(file_, F_OFD_GETLK, &first) != 0 ||
      first.l_type == F_UNLCK || static_cast<size_t>(info.st_size) < sizeof(RankBoard))
    return close();
  bytes_ = static_cast<size_t>(info.st_size);
  map(bytes_);
  const bool alike = board_->magic == kMagic && board_->ring_bytes >= kMinRingBytes &&
                     board_->ring_bytes <= kMaxRingBytes && board_->count <= kMaxRanks &&
                     bytes_ == board_bytes(static_cast<int>(board_->count), board_->ring_bytes);
  const uint32_t ranks = alike ? board_->count : 0;
  if (!alike) close();
  require<DeviceError>(alike, "ranks: rank 0 is of another version of the program (", path, ")");
  if (static_cast<int>(ranks) != count) close();
  require<DeviceError>(static_cast<int>(ranks) == count, "ranks: rank 0 was started as one of ", ranks,
                       ", rank ", rank, " as one of ", count);
  struct flock own = lock_of(rank, F_WRLCK);
  const bool mine = ::fcntl(file_, F_OFD_SETLK, &own) == 0;
  if (!mine) close();
  require<DeviceError>(mine, "ranks: there is a rank ", rank, " already (", path, ")");
  return true;
}

void BoardMemory::map(size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    file_ < 0 ? MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED, file_, 0);
  require<DeviceError>(at != MAP_FAILED, "ranks: cannot map ", bytes, " bytes: ", system_error());
  board_ = static_cast<RankBoard*>(at);
}

// What the system gives is zero, which every field but these begins with.
void BoardMemory::lay_out(int count, size_t ring_bytes) {
  board_->count = static_cast<uint32_t>(count);
  board_->ring_bytes = ring_bytes;
  board_->reporter = -1;
  board_->magic = kMagic;
}

BoardMemory::~BoardMemory() {
  if (board_) ::munmap(board_, bytes_);
  if (file_ >= 0) ::close(file_);
}

RankRing& BoardMemory::ring(int from, int to) const {
  const size_t at = static_cast<size_t>(from) * board_->count + static_cast<size_t>(to);
  return *reinterpret_cast<RankRing*>(reinterpret_cast<char*>(board_ + 1) + at * stride(board_->ring_bytes));
}

char* BoardMemory::ring_data(int from, int to) const {
  return reinterpret_cast<char*>(&ring(from, to)) + sizeof(RankRing);
}

void BoardMemory::clear() const {
  const auto count = static_cast<int>(board_->count);
  board_->reporter = -1;
  for (int from = 0; from < count; ++from) {
    slot(from).attempt = 0;
    slot(from).has_sent = 0;
    slot(from).beat = monotonic_seconds();
    for (int to = 0; to < count; ++to) ring(from, to).taken.store(ring(from, to).written.load());
  }
}

bool BoardMemory::lives(int rank) const {
  if (file_ < 0) return true;
  struct flock lock = lock_of(rank, F_WRLCK);
  // The own lock does not stand in the own way: a rank does not ask about itself.
  return ::fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace rocm_sd
