// The self-test of the ways between devices: right bytes, how soon, and how many a second.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "scaling/device_list.hpp"

namespace rocm_sd {

// One way between two devices, as two ranks in threads of their own use it.
struct PairTest {
  std::string from, to;
  std::string way;     // "host memory": from one device to the host, to the other rank, to its device
  double seconds = 0;  // of 256 bytes each way at the same time, the median
  double bytes_per_second = 0;  // of large messages, each way while the other way is busy, too
  size_t message_bytes = 0;     // of those
  std::string problem;          // why there are no figures, or which bytes came wrong; "": all is well
};

// Every pair of the devices, for `seconds` altogether at most where no device hangs. A pair whose device
// fails or hangs has a problem; nothing is thrown for it. Throws DeviceError where a device cannot be opened.
std::vector<PairTest> test_pairs(const std::vector<ListedDevice>& devices, double seconds);

nlohmann::ordered_json pair_tests_json(const std::vector<PairTest>& tests);
std::string pair_tests_text(const std::vector<PairTest>& tests);

}  // namespace rocm_sd
