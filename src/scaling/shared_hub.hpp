// SharedHub: ranks that share memory, no library: threads of one process, or processes of one host. Messages
// pass through rings of bytes; whoever waits sleeps on a futex.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "scaling/rank_board.hpp"
#include "scaling/rank_hub.hpp"

namespace rocm_sd {

class SharedHub final : public RankHub {
 public:
  // Of threads of this process. names: of the ranks, for messages.
  SharedHub(const std::vector<std::string>& names, RankPatience patience);
  // Of processes, this one being `rank` of `count`, which all name the same path (board_path()). Waits for
  // all of them, for at most patience.first seconds. Throws DeviceError where one does not come.
  SharedHub(const std::string& path, int rank, int count, const std::string& name, RankPatience patience);
  ~SharedHub() override;

  int count() const override { return static_cast<int>(memory_.board().count); }
  std::string name(int rank) const override { return memory_.slot(rank).name; }
  std::string way() const override { return "shared memory"; }
  RankBoard& board() const { return memory_.board(); }

  void begin_call(int rank) override;
  void end_call(int rank) override;
  void beat(int rank) override { memory_.slot(rank).beat = monotonic_seconds(); }
  bool silent(int rank) const override;
  std::string why_lost(int rank) const override;
  void expel(int rank) override { memory_.slot(rank).expelled = 1; }
  bool expelled(int rank) const override { return memory_.slot(rank).expelled != 0; }
  std::unique_ptr<Claims> claims(int rank) override { return std::make_unique<BoardClaims>(board(), rank); }

  void fail(int reporter, int rank, const std::string& reason, bool cancelled = false) override;
  bool failed() const override { return memory_.board().reporter >= 0; }
  bool cancelled() const override;
  std::optional<int> failed_rank() const override;
  std::string failure() const override;

  void begin(int rank) override;
  void send(int from, int to, const void* data, size_t bytes, uint32_t channel = 0) override;
  void receive(int from, int to, void* data, size_t bytes, uint32_t channel = 0) override;
  void expect(int from, int to) override;

 private:
  struct Header {
    uint64_t attempt, bytes;
    uint32_t channel, unused;
  };
  struct Message {
    Header header;
    std::vector<char> bytes;
  };
  // What has come from one rank to another: whole messages, and the one that is coming.
  struct Inbox {
    std::deque<Message> messages;
    Header header;
    size_t header_bytes = 0, body_bytes = 0;
    Message coming;
    // Where the message that is waited for goes at once, if it is the next to come.
    char* target = nullptr;
    Header wanted = {};
    bool direct = false;  // the one that is coming goes there
  };

  Inbox& inbox(int from, int to) {
    return inboxes_[static_cast<size_t>(from) * static_cast<size_t>(count()) + static_cast<size_t>(to)];
  }
  bool take_message(Inbox& box, const Header& wanted, void* data, int from, int to);
  void write(int from, int to, const char* data, size_t bytes);
  void take_in(int to);  // everything that has come for it
  void take_from(int from, int to);
  double limit(int rank) const;
  void throw_failure() const;
  void give_up_if_lost(int reporter, int rank);

  const BoardMemory memory_;
  const RankPatience patience_;
  const int own_ = -1;          // the rank of this process; -1: they are all threads of it
  std::vector<Inbox> inboxes_;  // [from][to], each used by the thread of `to`
  std::vector<char> anew_;      // whether the rank has begun an attempt in this call
  mutable std::vector<std::atomic<double>> stopped_since_;
};

}  // namespace rocm_sd
