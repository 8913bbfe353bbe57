// Who draws which request, of processes that divide many: each takes the next one that nobody has, and those
// of a rank that is lost.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocm_sd {

constexpr size_t kMaxClaims = size_t{1} << 20;

// What is noted of a request: 0, nobody has it; rank + 1, that rank draws it; rank + 1 + kMaxRanks, it hands
// the result over; kClaimDone.
constexpr uint8_t kClaimDone = 0xff;

// One rank's view. Every change is one step from one state to another that all ranks see alike, so that every
// request has one owner whoever is killed when. Throws DeviceError where the others cannot be asked.
class Claims {
 public:
  explicit Claims(int rank);
  virtual ~Claims() = default;

  // Whether it is this rank's from now on.
  bool take(size_t request) { return pass(request, 0, own_); }
  bool take_over(size_t request, int from);
  // Before the result is handed over: whether it still is. A rank that was stopped and given up finds that it
  // is not.
  bool begin_handing_over(size_t request) { return pass(request, own_, handing_over_); }
  // After it. A rank that is killed between the two has its request drawn again: its file may be half there.
  bool finish(size_t request) { return pass(request, handing_over_, kClaimDone); }
  bool done(size_t request) const { return state(request) == kClaimDone; }
  // -1: nobody, or it is done.
  int owner(size_t request) const;

 protected:
  // From one state to another -> whether it was in the first.
  virtual bool pass(size_t request, uint8_t from, uint8_t to) = 0;
  virtual uint8_t state(size_t request) const = 0;

 private:
  const uint8_t own_, handing_over_;
};

}  // namespace rocm_sd
