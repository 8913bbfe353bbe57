// Ctrl-C and SIGTERM: the first asks the command to stop and says so, the second ends the program at once.
#pragma once

namespace rocm_sd::cli {

void catch_interrupts();
bool interrupted();  // whether the first one has come

}  // namespace rocm_sd::cli
