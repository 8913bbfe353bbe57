// rocm-sd: Stable Diffusion from the command line.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "apps/cli/commands.hpp"
#include "rocm_sd/pipeline.hpp"

namespace {

constexpr const char* kDescription = "Stable Diffusion on AMD GPUs, NVIDIA GPUs and CPUs.";

// OpenMP's threads should sleep at barriers: spinning ones starve the others wherever cores are shared (20
// times slower was seen). libgomp reads the policy before main begins, so the program starts itself once more
// with it.
void wait_passively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  execv("/proc/self/exe", argv);  // where that fails, the program goes on as it is
}

// A file opened later must not get the number of a standard stream that the caller has closed, and be written
// to.
void open_standard_streams() {
  for (int stream = 0; stream <= 2; ++stream)
    if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) std::_Exit(70);
}

int run(int argc, char** argv) {
  CLI::App app(kDescription, "rocm-sd");
  app.set_version_flag("--version", rocm_sd::version());
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* failed, const CLI::Error& e) {
    std::string message = e.what();
    if (dynamic_cast<const CLI::ExtrasError*>(&e)) {  // whose own list runs backwards
      message = "not expected:";
      for (const std::string& extra : failed->remaining(true)) message += " " + extra;
    }
    return "error: " + message + "\nTry `" + (failed->get_parent() ? "rocm-sd " : "") + failed->get_name() +
           " --help`.\n";
  });
  rocm_sd::cli::add_generate(app);
  rocm_sd::cli::add_grid(app);
  rocm_sd::cli::add_serve(app);
  rocm_sd::cli::add_upscale(app);
  rocm_sd::cli::add_compare(app);
  rocm_sd::cli::add_inspect(app);
  rocm_sd::cli::add_convert(app);
  rocm_sd::cli::add_list(app);
  rocm_sd::cli::add_devices(app);
  rocm_sd::cli::add_doctor(app);
  rocm_sd::cli::add_predict(app);
  rocm_sd::cli::add_tune(app);
  rocm_sd::cli::add_bench(app);
  rocm_sd::cli::add_params(app);
  rocm_sd::cli::add_reproduce(app);
  rocm_sd::cli::add_tokenize(app);
  rocm_sd::cli::add_emu(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : static_cast<int>(rocm_sd::ExitCode::kUsage);
  }
  return 0;
}

}  // namespace

// What was printed must have arrived: a full disk behind a redirection is an error of the command. A reader
// that has gone (`rocm-sd list samplers | head`) is not.
int finish_output(int code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  const int error = errno;
  if (!failed || error == EPIPE || code != 0) return code;
  std::fprintf(stderr, "error: standard output: cannot write: %s\n",
               error ? std::strerror(error) : "I/O error");
  return static_cast<int>(rocm_sd::ExitCode::kFile);
}

int main(int argc, char** argv) {
  open_standard_streams();
  wait_passively(argv);
  std::signal(SIGPIPE, SIG_IGN);  // `rocm-sd list samplers | head` ends quietly
  try {
    return finish_output(run(argc, argv));
  } catch (const rocm_sd::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return static_cast<int>(e.exit_code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: out of memory\n");
    return static_cast<int>(rocm_sd::ExitCode::kOutOfMemory);
  } catch (const std::system_error& e) {
    // A stream whose reader has gone (`rocm-sd generate ... 2>&1 | head -1`): nobody is left to tell.
    if (e.code() == std::errc::broken_pipe) return static_cast<int>(rocm_sd::ExitCode::kGenerationFailed);
    if (std::ferror(stdout)) {
      std::fprintf(stderr, "error: standard output: cannot write: %s\n", e.code().message().c_str());
      return static_cast<int>(rocm_sd::ExitCode::kFile);
    }
    std::fprintf(stderr, "error: %s\n", e.what());
    return static_cast<int>(rocm_sd::ExitCode::kInternal);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: internal: %s\n", e.what());
    return static_cast<int>(rocm_sd::ExitCode::kInternal);
  }
}
