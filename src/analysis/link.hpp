// Ways between the GPUs of a host, as the model of scaling sees them: share/links/*.json, every figure with
// its kind (published, derived, measured or assumed) and its source.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rocm_sd {

struct LinkFigure {
  std::string name;  // "gb_per_s"
  double value = 0;
  std::string kind, source;
};

struct Link {
  std::string name, about;  // "pcie4"
  bool each_pair = false;   // a way of its own for each pair of GPUs; else a GPU's messages share one
  double gb_per_s = 0;      // of a way between two GPUs, in one direction
  double message_us = 0, next_message_us = 0;  // a message to a peer, and others started with it
  // Messages by way of host memory: the way between a GPU and the host, what a copy takes beside its bytes,
  // what a core copies within host memory, and until somebody who waits goes on.
  double host_gb_per_s = 0, host_copy_us = 0, host_memory_gb_per_s = 0, wake_us = 0;
  std::vector<LinkFigure> figures;  // all of them
};

// Throws FormatError naming the file and the field, FileError where it cannot be read.
Link read_link(const std::filesystem::path& path);

// "pcie3", "pcie4", "pcie5", "xgmi", "nvlink". Throws UsageError listing the names.
Link known_link(const std::string& name);

}  // namespace rocm_sd
