// Which workgroups of a launch the time model plays on one processor, and how many groups they stand for.
// Groups are alike, or all but a launch's last ones are; or else they differ throughout, as those of causal
// attention do.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "emulator/recording.hpp"

namespace rocm_sd::emu {

// Where a launch runs: groups go to dies in turn, and on a die to the first processor that has a place.
struct Dispatch {
  uint32_t dies = 1, processors = 1;  // of the card
  uint32_t resident = 1;              // groups of a processor at once
};

struct PlayedGroups {
  std::map<uint64_t, GroupRecord> records;  // by group
  std::vector<const GroupRecord*> order;
  // The groups of the busiest processor, and of the launch, in groups as large as the mean of `order`.
  double of_processor = 0, of_launch = 0;
  bool uneven = false;  // groups differ throughout
};

// recorded: groups that are run to their end and kept, at most, where groups are alike. Throws as
// record_group().
PlayedGroups played_groups(const LaunchPlan& plan, const Dispatch& dispatch, uint32_t recorded);

// The work of each of `groups` groups, by the function that runs one of them and returns it: what repeats
// along the grid is run once. Where nothing repeats, groups at equal distances are run, and others are taken
// to be as large as the next of these.
std::vector<double> works_of_groups(uint64_t groups, const std::function<double(uint64_t)>& work);

// The groups of the processor that ends last, in the order in which they start there.
std::vector<uint64_t> busiest_stream(const std::vector<double>& works, const Dispatch& dispatch);

}  // namespace rocm_sd::emu
