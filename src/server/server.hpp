// The server as a whole: sockets, APIs, queue, workers.
#pragma once

#include "server/options.hpp"

namespace rocm_sd::server {

// Serves until SIGINT or SIGTERM, then finishes or cancels what runs within the grace time. Prints the
// address to standard output when it listens. Throws UsageError, FileError or FormatError for what is wrong
// with the options. The process must be single-threaded when this is called.
void serve(const ServerOptions& options);

}  // namespace rocm_sd::server
