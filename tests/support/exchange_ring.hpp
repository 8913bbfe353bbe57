// Ranks on threads or on one, whose windows lie in host memory: what src/scaling makes of GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "composable_kernels/fused/exchange.hpp"

namespace rocm_sd::testing_support {

class ExchangeRing {
 public:
  // window: of a message. kept: of a half of what stays until the next call.
  ExchangeRing(int count, size_t window, size_t kept, uint64_t patience = 0)
      : controls_(static_cast<size_t>(count)), late_(controls_.size()) {
    constexpr size_t kFlag = 32;  // words from flag to flag
    const size_t share = 2 * (window + kept);
    for (int rank = 0; rank < count; ++rank) {
      windows_.emplace_back(share * controls_.size(), char{-1});
      flags_.emplace_back(kFlag * controls_.size(), 0u);
    }
    for (size_t rank = 0; rank < controls_.size(); ++rank) {
      ExchangeControl& control = controls_[rank];
      control = {};
      control.slot_bytes = static_cast<int64_t>(window);
      control.kept_bytes = static_cast<int64_t>(kept);
      control.patience = patience;
      control.stop = &stop;
      control.late = &late_[rank];
      for (size_t other = 0; other < controls_.size(); ++other) {
        if (other == rank) continue;
        char* const to = windows_[other].data() + share * rank;
        char* const from = windows_[rank].data() + share * other;
        control.peers[other] = {.to = to,
                                .from = from,
                                .kept_to = to + 2 * window,
                                .kept_from = from + 2 * window,
                                .flag_there = &flags_[other][kFlag * rank],
                                .flag_here = &flags_[rank][kFlag * other],
                                .put = 0,
                                .taken = 0};
      }
    }
  }
  int count() const { return static_cast<int>(controls_.size()); }
  ExchangeControl* control(int rank) { return &controls_[static_cast<size_t>(rank)]; }
  uint32_t late(int rank) const { return late_[static_cast<size_t>(rank)]; }
  uint32_t others(int rank) const { return ((1u << count()) - 1) & ~(1u << rank); }

  uint32_t stop = 0;

 private:
  std::vector<ExchangeControl> controls_;
  std::vector<uint32_t> late_;
  std::vector<std::vector<char>> windows_;
  std::vector<std::vector<uint32_t>> flags_;
};

}  // namespace rocm_sd::testing_support
