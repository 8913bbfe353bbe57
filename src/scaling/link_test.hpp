// The self-test of the way that messages take: right bytes, how soon, and how many a second.
#pragma once

#include "runtime/ranks.hpp"

namespace rocm_sd {

struct LinkTest {
  double seconds =
      0;  // of a message of 8 bytes to the next rank while one of the rank before comes, the median
  double bytes_per_second = 0;  // the same of messages of 1 MiB, each way
};

// Every rank with its neighbours in a circle, a few milliseconds. All ranks call it, after begin(). Throws
// DeviceError where other bytes come than were sent, and what Ranks throws.
LinkTest test_links(Ranks& ranks);

}  // namespace rocm_sd
