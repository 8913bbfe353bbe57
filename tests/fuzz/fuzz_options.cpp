// Fuzzes a request's options as text, "name=value" a line: each is set, or refused by an Error, and what was
// set survives the checks that need no model. Options that name files are left out.
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "pipeline/adapters.hpp"
#include "pipeline/options.hpp"
#include "schedulers/sampler.hpp"

namespace {

using namespace rocm_sd;

constexpr size_t kMaxText = 2000, kMaxOptions = 16;

void check(bool ok) {
  if (!ok) std::abort();
}

bool names_files(const OptionRow& row) {
  const std::string_view value = row.value;
  return value.find("FILE") != value.npos || value.find("PATH") != value.npos ||
         value.find("FOLDER") != value.npos;
}

// By its name, or by a byte where the text begins with no name.
const OptionRow& row_of(std::string_view name) {
  const auto rows = option_rows();
  for (const OptionRow& row : rows)
    if (name == row.name) return row;
  return rows[name.empty() ? 0 : static_cast<unsigned char>(name[0]) % rows.size()];
}

template <class Body>
void expect_errors_only(const Body& body) {
  try {
    body();
  } catch (const Error&) {  // a refusal is a right answer
  }
}

void fuzz(std::string_view text) {
  GenerateRequest request;
  OptionTargets targets{nullptr, &request};
  for (size_t count = 0; !text.empty() && count < kMaxOptions; ++count) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t equals = std::min(line.find('='), line.size());
    const OptionRow& row = row_of(line.substr(0, equals));
    const std::string_view value = line.substr(std::min(equals + 1, line.size()));
    if (std::string_view(row.name) == "lora") {
      expect_errors_only([&] {
        const LoraUse use = parse_lora_use(std::string(value));
        check(!use.file.empty() && std::isfinite(use.weight) && std::isfinite(use.te_weight));
      });
    } else if (!names_files(row)) {
      expect_errors_only([&] { set_option(targets, row.name, value); });
    }
  }
  check(request.steps >= 1 && request.steps <= 1000 && request.batch >= 1 && request.batch <= 64);
  check(std::isfinite(request.cfg_scale) && std::isfinite(request.strength));
  for (const ControlUse& use : request.controls)
    for (const auto& number : {use.strength, use.start, use.end}) check(!number || std::isfinite(*number));
  for (const double sigma : request.sigmas) check(std::isfinite(sigma));
  // As a server reads names before a model is there. Few steps: a schedule's length is not what is tried.
  SamplingRequest sampling;
  sampling.sampler = request.sampler;
  sampling.schedule = request.schedule;
  sampling.steps = 4;
  expect_errors_only([&] { plan_sampling(NoiseSchedule(), sampling); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  fuzz({reinterpret_cast<const char*>(data), std::min(size, kMaxText)});
  return 0;
}
