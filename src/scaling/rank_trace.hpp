// The trace of several ranks in one file (chrome://tracing, Perfetto): a process for each rank, with its
// operations, its exchanges on a track of their own, and the messages between ranks from the moment when they
// were sent to the one when they were taken.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace rocm_sd {

class Pipeline;

// A message as one of its two ranks saw it: how long it took to send, or how long it was waited for.
struct MessageEvent {
  using Clock = std::chrono::steady_clock;
  int other = 0;  // the rank at the other end
  bool sent = false;
  uint64_t bytes = 0;
  uint32_t channel = 0;
  Clock::time_point begin, end;
};

struct TracedRank {
  std::string name;  // "cuda:0"
  const Pipeline* pipeline = nullptr;
  MessageEvent::Clock::time_point begin;                // of its profile
  const std::vector<MessageEvent>* messages = nullptr;  // null: it draws alone
};

// groups: ranks that draw one image together. Throws FileError.
void write_rank_trace(const std::string& path, const std::vector<std::vector<TracedRank>>& groups);

}  // namespace rocm_sd
