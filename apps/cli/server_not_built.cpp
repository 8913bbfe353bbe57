// Stands for `serve` where ROCM_SD_SERVER is off: `make demo` does not build it.
#include "apps/cli/commands.hpp"
#include "base/error.hpp"

namespace rocm_sd::cli {

void add_serve(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("serve", "(not in this build: `make build`, with libboost-dev)");
  sub->allow_extras();
  sub->callback([] {
    throw UsageError(
        "serve is not part of this build: `make build` builds build/cpu/apps/cli/rocm-sd with it where "
        "Boost's "
        "headers and SQLite are (libboost-dev, libsqlite3-dev)");
  });
}

}  // namespace rocm_sd::cli
