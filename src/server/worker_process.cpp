#include "server/worker_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "server/worker_main.hpp"

extern char** environ;

namespace rocm_sd::server {
namespace {

constexpr int kSendSeconds = 10;  // a worker that reads nothing for so long is stuck

// SIGKILL cannot be refused, but a process in an uninterruptible call of a driver ends late.
constexpr auto kReapTime = std::chrono::seconds(5);

}  // namespace

WorkerProcess::WorkerProcess() {
  int ends[2];
  require<InternalError>(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0,
                         "worker: no socket pair: ", std::strerror(errno));
  // Moved out of the way: a descriptor that is duplicated onto its own number would keep its close-on-exec
  // mark.
  const int theirs = fcntl(ends[1], F_DUPFD_CLOEXEC, kWorkerSocket + 1);
  ::close(ends[1]);
  socket_ = ends[0];
  const timeval time{kSendSeconds, 0};
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, theirs, kWorkerSocket);
  // Connections of clients have no close-on-exec mark, and must not stay open in a worker.
  posix_spawn_file_actions_addclosefrom_np(&actions, kWorkerSocket + 1);
  // The supervisor's threads block the signals that one of them waits for.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  char name[] = "rocm-sd", command[] = "serve-worker";
  char* arguments[] = {name, command, nullptr};
  const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, &attributes, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(theirs);
  if (error != 0) {
    ::close(socket_);
    throw InternalError(concat("worker: cannot be started: ", std::strerror(error)));
  }
}

WorkerProcess::~WorkerProcess() {
  kill();
  wait();
  ::close(socket_);
}

void WorkerProcess::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

std::string WorkerProcess::wait() {
  if (pid_ <= 0) return "ended";
  int status = 0;
  const auto end = std::chrono::steady_clock::now() + kReapTime;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) return "did not end";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return concat("was killed by signal ", signal, " (", strsignal(signal), ")",
                  signal == SIGKILL ? ", as the system does where memory runs out" : "");
  }
  return concat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace rocm_sd::server
