// Stands for the commands that measure (bench, predict, tune) where ROCM_SD_MEASUREMENT is off: `make demo`
// does not build them.
#include "apps/cli/background_tuning.hpp"
#include "apps/cli/commands.hpp"
#include "base/error.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd::cli {
namespace {

[[noreturn]] void not_built(const char* what) {
  throw UsageError(concat(
      what, " is not part of this build (`make demo`'s): `make build` builds build/cpu/apps/cli/rocm-sd"));
}

void add(CLI::App& app, const char* name) {
  CLI::App* sub = app.add_subcommand(name, "(not in this build: `make build`)");
  sub->allow_extras();
  sub->callback([name] { not_built(name); });
}

}  // namespace

void add_bench(CLI::App& app) { add(app, "bench"); }
void add_predict(CLI::App& app) { add(app, "predict"); }
void add_tune(CLI::App& app) { add(app, "tune"); }

BackgroundTuning::BackgroundTuning(const std::string& device, double, std::function<bool()>)
    : device_(device_named(device)) {
  not_built("generate --tune");
}
void BackgroundTuning::spend() {}

}  // namespace rocm_sd::cli
