// rocm-sd upscale: a picture, enlarged by a network or a filter.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "apps/cli/commands.hpp"
#include "apps/cli/interrupt.hpp"
#include "apps/cli/progress.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "rocm_sd/upscale.hpp"

namespace rocm_sd::cli {
namespace {

struct UpscaleCommand {
  UpscalerOptions options;
  UpscaleRequest request;
  std::string input, output = "upscaled.png", progress = "auto";
  int quality = 95;
  bool quiet = false;
};

void run_upscale(const UpscaleCommand& command) {
  require<UsageError>(
      command.request.factor == 0 || (command.request.width == 0 && command.request.height == 0),
      "factor, width, height: expected a factor or a size");
  require_writable(command.output);
  const Image image = load_image(command.input);
  const std::string parameters = read_parameters(command.input);
  Upscaler upscaler = Upscaler::load(command.options);
  const UpscalerInfo& info = upscaler.info();
  if (!command.quiet && info.kind != "filter")
    fmt::print(stderr, "{}: {} x{}, {:.1f} M parameters, {} on {}\n", info.name, info.kind, info.factor,
               static_cast<double>(info.parameters) / 1e6, info.dtype, info.device);
  ProgressPrinter printer(parse_progress_style(command.quiet ? "none" : command.progress));
  catch_interrupts();
  Callbacks callbacks;
  callbacks.progress = [&](const Progress& p) {
    printer(p);
    return true;
  };
  callbacks.cancelled = interrupted;
  const auto begin = std::chrono::steady_clock::now();
  Image out;
  try {
    out = upscaler.upscale(image, command.request, callbacks);
  } catch (...) {
    printer.finish();
    throw;
  }
  printer.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (!command.quiet)
    fmt::print(stderr, "{} x {} to {} x {} in {:.2f} s\n", image.width, image.height, out.width, out.height,
               seconds.count());
  save_image(out, command.output, {.quality = command.quality, .parameters = parameters});
  fmt::print("{}\n", command.output);
}

}  // namespace

void add_upscale(CLI::App& app) {
  auto command = std::make_shared<UpscaleCommand>();
  CLI::App* sub =
      app.add_subcommand("upscale", "enlarge a picture by a network (ESRGAN, Real-ESRGAN) or a filter");
  sub->add_option("FILE", command->input, "PNG, JPEG or WebP; its parameters are kept")
      ->required()
      ->type_name("");
  add_text(sub, "--upscaler", command->options.model,
           "weights of an RRDBNet, SRVGGNetCompact, SPAN or SwinIR (.safetensors, .pth), or lanczos, "
           "bicubic, nearest")
      ->required()
      ->type_name("FILE|NAME");
  add_text(sub, "-o,--output", command->output, "file name ending in .png, .jpg or .webp")
      ->option_text("FILE [" + command->output + "]");
  add_number(sub, "--factor", command->request.factor,
             "of both sides; more than the network's own: several passes [the network's; filters: 2]", 0.01,
             64);
  add_number(sub, "-W,--width", command->request.width, "of the result, in place of --factor", 1, 32768);
  add_number(sub, "-H,--height", command->request.height, "the same; one of them alone keeps the shape", 1,
             32768);
  add_number(sub, "--tile", command->request.tiles.size,
             "side of the windows that the network works in; 0: the whole picture at once [512]", 0, 32768);
  add_number(sub, "--tile-overlap", command->request.tiles.overlap, "pixels that windows share at least [64]",
             0, 16384);
  add_text(sub, "--device", command->options.device, "auto, cpu, hip, cuda, hip:1, ... [auto]")
      ->type_name("NAME");
  add_text(sub, "--dtype", command->options.dtype,
           "auto (f16 on GPUs, f32 on the CPU), f16, bf16, f32 [auto]")
      ->type_name("TYPE");
  add_number(sub, "--quality", command->quality, "JPEG and WebP, 1 to 100 (WebP 100: lossless) [95]", 1, 100);
  sub->add_option("--progress", command->progress, "auto, bar, line, plain, json, none [auto]")
      ->type_name("FORM");
  sub->add_flag("-q,--quiet", command->quiet, "print the file name only");
  sub->callback([command] { run_upscale(*command); });
}

}  // namespace rocm_sd::cli
