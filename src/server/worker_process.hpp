// A worker process as its supervisor holds it: started, killed, reaped.
#pragma once

#include <sys/types.h>

#include <string>

namespace rocm_sd::server {

class WorkerProcess {
 public:
  // Starts this program once more as `serve-worker`, with one end of a socket pair. Throws InternalError
  // where the system gives no process.
  WorkerProcess();
  ~WorkerProcess();  // kills it
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int socket() const { return socket_; }
  pid_t pid() const { return pid_; }
  void kill();
  // Waits for its end, after the socket has closed or kill(): "killed by signal 9", "exit code 70".
  std::string wait();

 private:
  int socket_ = -1;
  pid_t pid_ = -1;
};

}  // namespace rocm_sd::server
