// Names of output files from a pattern.
#pragma once

#include <cstdint>
#include <string>

namespace rocm_sd {

struct OutputName {
  int index = 1;  // of the picture in this run, from 1
  int count = 1;  // pictures that the run will write
  uint64_t seed = 0;
  std::string model;
  std::string input = {};  // of a folder's picture: its name without the ending
};

// {index} {seed} {model} {input} and sd.cpp's %d, %03d (the index) are replaced; widths as {index:05} or
// {index:05d}. Where several pictures are written and nothing in the pattern tells them apart, _2, _3, ... is
// put before the ending. Missing folders are made. Throws UsageError for an unknown placeholder, or an ending
// that is no picture format.
std::string output_name(const std::string& pattern, const OutputName& values);

}  // namespace rocm_sd
