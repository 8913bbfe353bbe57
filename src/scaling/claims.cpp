#include "scaling/claims.hpp"

#include "scaling/rank_board.hpp"

namespace rocm_sd {

static_assert(2 * kMaxRanks < kClaimDone);

Claims::Claims(int rank)
    : own_(static_cast<uint8_t>(rank + 1)), handing_over_(static_cast<uint8_t>(rank + 1 + kMaxRanks)) {}

bool Claims::take_over(size_t request, int from) {
  const auto drawing = static_cast<uint8_t>(from + 1);
  return pass(request, drawing, own_) || pass(request, static_cast<uint8_t>(drawing + kMaxRanks), own_);
}

int Claims::owner(size_t request) const {
  const uint8_t who = state(request);
  return who == 0 || who == kClaimDone ? -1 : (who - 1) % kMaxRanks;
}

bool BoardClaims::pass(size_t request, uint8_t from, uint8_t to) {
  return board_.claims[request].compare_exchange_strong(from, to);
}

}  // namespace rocm_sd
