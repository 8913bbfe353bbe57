// The worker process: one device, one model in memory, jobs that share the UNet's calls, orders over a
// socket.
#pragma once

namespace rocm_sd::server {

// Serves until the socket closes; the process's exit code. What the device or a kernel does to this process
// ends one job: the supervisor starts another.
int run_worker(int socket);

// The descriptor that a supervisor gives its worker.
constexpr int kWorkerSocket = 3;

}  // namespace rocm_sd::server
