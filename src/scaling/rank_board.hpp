// RankBoard: memory that ranks share, threads of one process or processes of one host: a slot for each rank,
// a ring of bytes from each to each, and who draws which request. Without locks, so that a rank that is
// killed holds nothing that the others need.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "scaling/claims.hpp"

namespace rocm_sd {

constexpr int kMaxRanks = 64;

// All atomics are free of locks and of addresses (static_assert in the .cpp): processes map the board at
// different places. Times are seconds of the machine's monotonic clock.
struct alignas(64) RankSlot {
  std::atomic<double> beat;
  std::atomic<uint64_t> attempt;
  std::atomic<uint32_t> has_sent;  // in this attempt
  std::atomic<uint32_t> idle;      // between calls
  std::atomic<uint32_t> joined;    // its name is there
  std::atomic<uint32_t> left;      // it ended in good order
  std::atomic<uint32_t> expelled;  // the others have given it up
  std::atomic<int32_t> process;    // 0: a thread of the board's only process
  std::atomic<uint32_t> bell;      // rises with everything that it may wait for
  std::atomic<uint32_t> asleep;
  // What it reported, before it put its number into RankBoard::reporter.
  int32_t failed_rank;
  uint32_t cancelled;
  char reason[512];
  char name[64];
};

struct RankRing {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> taken;
};

struct RankBoard {
  uint64_t magic;
  uint32_t count;
  uint64_t ring_bytes;
  std::atomic<int32_t> reporter;  // -1: nobody has failed
  RankSlot slots[kMaxRanks];
  std::atomic<uint8_t> claims[kMaxClaims];  // claims.hpp
};

// The mapping of a board.
class BoardMemory {
 public:
  // Of threads.
  explicit BoardMemory(int count);
  // Of processes: rank 0 makes the file, the others wait for it, for at most `seconds`. Every process holds a
  // lock on its byte of the file for as long as it lives, which the system takes away from a dead one. Rank
  // 0 removes the file's name when all have come, so that nothing is left whoever is killed. Throws
  // DeviceError.
  BoardMemory(const std::string& path, int rank, int count, double seconds);
  ~BoardMemory();
  BoardMemory(const BoardMemory&) = delete;
  BoardMemory& operator=(const BoardMemory&) = delete;

  RankBoard& board() const { return *board_; }
  RankSlot& slot(int rank) const { return board_->slots[rank]; }
  RankRing& ring(int from, int to) const;
  char* ring_data(int from, int to) const;
  // Empties it: nobody is at work.
  void clear() const;
  // Whether the process of that rank lives; true for threads.
  bool lives(int rank) const;

 private:
  void lay_out(int count, size_t ring_bytes);
  void make_file(const std::string& path, int count);
  bool open_file(const std::string& path, int rank, int count);
  void map(size_t bytes);

  RankBoard* board_ = nullptr;
  size_t bytes_ = 0;
  int file_ = -1;
};

// The claims of a board: a change is one exchange of a byte.
class BoardClaims final : public Claims {
 public:
  BoardClaims(RankBoard& board, int rank) : Claims(rank), board_(board) {}

 protected:
  bool pass(size_t request, uint8_t from, uint8_t to) override;
  uint8_t state(size_t request) const override { return board_.claims[request]; }

 private:
  RankBoard& board_;
};

double monotonic_seconds();
// Wakes the rank, where it sleeps.
void ring_bell(RankSlot& slot);
// Sleeps until the bell is no longer `seen`, for at most a tenth of a second -> whether it rang.
bool wait_for_bell(RankSlot& slot, uint32_t seen);

// Where the processes of a job meet: in memory that is shared as a file. job: of letters, digits, '-', '_'
// and '.'.
std::string board_path(const std::string& job);

}  // namespace rocm_sd
