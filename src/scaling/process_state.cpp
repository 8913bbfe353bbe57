#include "scaling/process_state.hpp"

#include <fstream>
#include <string>

#include "base/error.hpp"

namespace rocm_sd {

ProcessState process_state(int process) {
  std::ifstream file(concat("/proc/", process, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t name_ends = line.rfind(')');  // the program's name may have any character
  if (name_ends == std::string::npos || name_ends + 2 >= line.size()) return ProcessState::kGone;
  const char state = line[name_ends + 2];
  if (state == 'Z' || state == 'X') return ProcessState::kGone;
  return state == 'T' || state == 't' ? ProcessState::kStopped : ProcessState::kRunning;
}

}  // namespace rocm_sd
