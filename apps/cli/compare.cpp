// rocm-sd compare: how far pictures are from a reference.
#include <fmt/format.h>

#include <memory>

#include "apps/cli/commands.hpp"
#include "apps/cli/generate_report.hpp"
#include "base/error.hpp"
#include "pipeline/picture_quality.hpp"

namespace rocm_sd::cli {
namespace {

struct CompareCommand {
  std::string reference;
  std::vector<std::string> pictures;
};

void run_compare(const CompareCommand& command) {
  const Image reference = load_image(command.reference);
  for (const std::string& path : command.pictures)
    fmt::print("{}: {}\n", printable(path), quality_text(picture_quality(reference, load_image(path))));
}

}  // namespace

void add_compare(CLI::App& app) {
  auto command = std::make_shared<CompareCommand>();
  CLI::App* sub = app.add_subcommand("compare", "how far pictures are from a reference: PSNR, SSIM, FLIP");
  sub->add_option("REFERENCE", command->reference, "PNG, JPEG or WebP")->required()->type_name("");
  sub->add_option("PICTURE", command->pictures, "of its size")->required()->type_name("");
  sub->callback([command] { run_compare(*command); });
}

}  // namespace rocm_sd::cli
