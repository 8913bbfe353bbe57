// Waves of 64 lanes, also where the target's own are of 32 (-mwavefrontsize64): branches and loops that split
// a wave across its halves, and the masks that lanes see in them.
#include "device.hpp"

struct Seen {
  ulong odd;    // lanes of the wave that ask together, where x is odd; else 0
  uint rank;    // how many of `odd` lie below this lane
  uint first;   // x of the lowest lane whose x has the same parity
  uint turns;   // steps of 3n + 1 until 1, at most 64
  uint at_end;  // lanes of the wave that are still at it when this one leaves
};
struct Wide {
  const uint* x;
  Seen* seen;
  int count;
};
KERNEL wide(Wide p) {
  const uint i = group_x() * 160 + thread_x();
  if ((int)i >= p.count) return;
  const uint x = p.x[i];
  Seen s = {0, 0, 0, 0, 0};
  if (x & 1) {
    s.odd = __builtin_amdgcn_ballot_w64((x & 2) != 0);
    s.rank = __builtin_amdgcn_mbcnt_hi((uint)(s.odd >> 32), __builtin_amdgcn_mbcnt_lo((uint)s.odd, 0));
    s.first = __builtin_amdgcn_readfirstlane(x);
  } else {
    s.first = __builtin_amdgcn_readfirstlane(x);
  }
  uint n = x;
  while (n != 1 && s.turns < 64) {
    n = n & 1 ? 3 * n + 1 : n / 2;
    ++s.turns;
    s.at_end = __builtin_popcountl(__builtin_amdgcn_ballot_w64(true));
  }
  p.seen[i] = s;
}
