// Who draws which request, of processes that divide many: each takes the next one that nobody has, and those
// of a rank that is lost.
#pragma once

#include <cstddef>

#include "scaling/rank_board.hpp"

namespace rocm_sd {

// One rank's view of the claims of a board. A claim passes by one exchange of a byte, so that every request
// has one owner whoever is killed when.
class Claims {
 public:
  Claims(RankBoard& board, int rank) : board_(board), own_(static_cast<uint8_t>(rank + 1)) {}

  // Whether it is this rank's from now on.
  bool take(size_t request) { return pass(request, 0, own_); }
  bool take_over(size_t request, int from) {
    const int drawing = from + 1;
    return pass(request, drawing, own_) || pass(request, drawing + kMaxRanks, own_);
  }
  // Before the result is handed over: whether it still is. A rank that was stopped and given up finds that it
  // is not.
  bool begin_handing_over(size_t request) { return pass(request, own_, own_ + kMaxRanks); }
  // After it. A rank that is killed between the two has its request drawn again: its file may be half there.
  bool finish(size_t request) { return pass(request, own_ + kMaxRanks, kDone); }
  bool done(size_t request) const { return board_.claims[request] == kDone; }
  // -1: nobody, or it is done.
  int owner(size_t request) const {
    const uint8_t who = board_.claims[request];
    return who == 0 || who == kDone ? -1 : (who - 1) % kMaxRanks;
  }

 private:
  static constexpr uint8_t kDone = 0xff;
  bool pass(size_t request, int from, int to) {
    auto expected = static_cast<uint8_t>(from);
    return board_.claims[request].compare_exchange_strong(expected, static_cast<uint8_t>(to));
  }

  RankBoard& board_;
  const uint8_t own_;
};

}  // namespace rocm_sd
