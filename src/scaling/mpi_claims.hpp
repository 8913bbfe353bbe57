// The claims of ranks that share no memory: every rank has a copy of the table, and the first rank that is
// not given up decides about changes and tells them to the others.
#pragma once

#include <functional>
#include <vector>

#include "scaling/claims.hpp"

namespace rocm_sd {

class ClaimTable {
 public:
  uint8_t state(size_t request) const { return request < states_.size() ? states_[request] : 0; }
  void set(size_t request, uint8_t to) {
    if (request >= states_.size()) states_.resize(request + 1, 0);
    states_[request] = to;
  }
  size_t size() const { return states_.size(); }
  // A question may be asked twice, where the one who decides was lost: who has what he asks for, gets it.
  bool pass(size_t request, uint8_t from, uint8_t to) {
    if (state(request) == to) return true;
    if (state(request) != from) return false;
    set(request, to);
    return true;
  }

 private:
  std::vector<uint8_t> states_;
};

class MpiClaims final : public Claims {
 public:
  using Pass = std::function<bool(size_t request, uint8_t from, uint8_t to)>;
  using State = std::function<uint8_t(size_t request)>;
  MpiClaims(int rank, Pass pass, State state)
      : Claims(rank), pass_(std::move(pass)), state_(std::move(state)) {}

 protected:
  bool pass(size_t request, uint8_t from, uint8_t to) override { return pass_(request, from, to); }
  uint8_t state(size_t request) const override { return state_(request); }

 private:
  const Pass pass_;
  const State state_;
};

}  // namespace rocm_sd
