// Which weights of a streamed model stay on the device and which take turns (WeightStream).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rocm_sd {

// A weight in the order of a program, and the work of the launches that read it, in any unit.
struct StreamedUse {
  uint64_t bytes = 0;
  double work = 0;
};

// For each weight whether it takes turns; the others have at most `keep` bytes together. Copies that run
// beside launches are hidden where there is work: the bytes that take turns are spread over the program by
// its work, and where few weights are read by much work (SDXL's fine levels) all of them take turns.
std::vector<bool> choose_turns(std::span<const StreamedUse> uses, uint64_t keep);

}  // namespace rocm_sd
