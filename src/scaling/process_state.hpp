// What the system tells of another process of this host.
#pragma once

namespace rocm_sd {

enum class ProcessState { kRunning, kStopped, kGone };  // kGone: ended, or not there
ProcessState process_state(int process);

// A process that is stopped may be a debugger's for a moment.
constexpr double kStoppedSeconds = 3;

}  // namespace rocm_sd
