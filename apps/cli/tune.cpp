// rocm-sd tune: the fastest choice for each problem of a model, kept in a table; and what is done with
// tables.
#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>

#include "apps/cli/commands.hpp"
#include "apps/cli/interrupt.hpp"
#include "apps/cli/tuning_problems.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "measurement/bench.hpp"
#include "measurement/explore.hpp"
#include "measurement/tunable_op.hpp"
#include "tuning/choices.hpp"

namespace rocm_sd::cli {
namespace {

using tuning::Record;
using tuning::Table;

struct TuneCommand {
  ProblemSource source;
  std::string device = "auto", table, gpu;
  double per_problem = 0.5, budget = 0;  // seconds; 0: no end
  int threads = 0, played = 0;
  bool again = false, quiet = false;
};

std::filesystem::path table_path(const std::string& asked, const tuning::Identity& identity) {
  if (!asked.empty()) return asked;
  std::filesystem::path path = tuning::user_table_file(identity);
  require<UsageError>(!path.empty(), "tune: neither XDG_CACHE_HOME nor HOME is set: --table names the file");
  return path;
}

// The card whose launches an emulated device models; nothing where it models none.
std::optional<GpuProduct> modelled_card(Device& device) {
  const auto setting = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (device.kind() != DeviceKind::kEmulator || setting("ROCM_SD_EMULATOR_TIME").empty()) return std::nullopt;
  const std::string machine = setting("ROCM_SD_EMULATOR_MACHINE");
  if (machine.empty()) return measurement::product_of(device);
  const GpuProduct* card = find_gpu_product(machine);
  return card ? std::optional(*card) : std::nullopt;
}

class ProgressLine {
 public:
  explicit ProgressLine(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}
  void operator()(const measurement::TuneProgress& p) {
    if (quiet_ || p.op.empty()) return clear();
    const std::string line = fmt::format("tuning {}/{} shapes, {:.0f} s left: {} {}", p.done, p.all,
                                         p.seconds_left, p.op, printable(p.text, 60));
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r\033[K" : "", line, terminal_ ? "" : "\n");
    std::fflush(stderr);
    shown_ = terminal_;
  }
  void note(const std::string& line) {
    clear();
    fmt::print(stderr, "note: {}\n", line);
  }
  void clear() {
    if (shown_) fmt::print(stderr, "\r\033[K");
    shown_ = false;
  }

 private:
  bool quiet_, terminal_, shown_ = false;
};

void run_tune(const TuneCommand& c) {
  if (c.threads > 0) omp_set_num_threads(c.threads);
  Device& device = open_counting_device(c.device);
  tuning::Identity identity = tuning::identity_of(device);
  const std::optional<GpuProduct> card = modelled_card(device);
  if (card) {
    identity.product = card->name;
    identity.arch = card->arch;
  }
  const auto problems = problems_of(c.source, device);
  tuning::Journal journal(table_path(c.table, identity));
  ProgressLine line(c.quiet);
  catch_interrupts();
  measurement::TuneOptions options{.seconds = c.budget,
                                   .again = c.again,
                                   .per_problem = c.per_problem,
                                   .progress = [&](const measurement::TuneProgress& p) { line(p); },
                                   .note = [&](const std::string& text) { line.note(text); },
                                   .cancelled = interrupted};
  if (card) {
    options.identity = identity;
    options.shortlist = static_cast<size_t>(c.played);
    options.rank = bound_model(*card);
  }
  const measurement::TuneReport report = measurement::tune(device, problems, journal, options);
  line.clear();
  journal.compact();
  const bool model = device.kind() == DeviceKind::kEmulator;
  fmt::print("{}: {} shapes with a choice; {} tuned now, {} known, {} left\n", device.name(), report.problems,
             report.done, report.kept, report.left);
  if (report.default_seconds > 0)
    fmt::print(
        "a picture's launches of them: {:.3f} ms untuned, {:.3f} ms tuned ({:.1f}% less){}; {} choices "
        "differ\n",
        report.default_seconds * 1e3, report.tuned_seconds * 1e3,
        100 * (1 - report.tuned_seconds / report.default_seconds),
        model ? ", by the model: nothing was timed" : "", report.changed);
  fmt::print("{}\n", printable_path(journal.path()));
  require<GenerationError>(
      report.wrong == 0, "tune: ", report.wrong,
      " choices gave wrong results and were not kept (see the notes); please report them");
  require<CancelledError>(!report.cancelled, "cancelled; `rocm-sd tune` goes on where this ended");
}

// ---- what is done with tables ----

struct TableCommand {
  std::string file, output, device, op, format = "table";
  std::vector<std::string> files;
  bool no_check = false, all = false;
};

Table read_given_or_own(const std::string& file, const tuning::Identity& identity) {
  return file.empty() ? tuning::read_tables(identity) : Table::read(file);
}

void print_table(const Table& table, const TableCommand& c) {
  size_t shown = 0;
  for (const Record& r : table.records()) {
    if (!c.op.empty() && r.op != c.op) continue;
    ++shown;
    fmt::print("{:<11} {:<58} {:<34} {:>10.1f} us{:>7.1f}%  {} {}, {} ({} units){}\n", r.op,
               printable(r.problem), printable(r.choice), r.microseconds,
               r.default_microseconds > 0 ? 100 * (r.microseconds / r.default_microseconds - 1) : 0.0,
               r.origin == tuning::Origin::kMeasured ? "measured" : "model's", printable(r.date),
               printable(r.device.product), r.device.units,
               r.choice == r.default_choice ? ", as untuned" : "");
  }
  fmt::print("{} choices", shown);
  if (shown != table.size()) fmt::print(" of {}", table.size());
  if (table.bad_lines() > 0) fmt::print(", {} damaged lines left out", table.bad_lines());
  fmt::print("\n");
}

void run_show(const TableCommand& c) {
  if (!c.file.empty()) return print_table(Table::read(c.file), c);
  const tuning::Identity identity = tuning::identity_of(open_counting_device(c.device));
  for (const auto& file : tuning::table_files(identity)) fmt::print("{}\n", printable_path(file));
  print_table(tuning::read_tables(identity), c);
}

void run_export(const TableCommand& c) {
  const tuning::Identity identity = tuning::identity_of(open_counting_device(c.device));
  const Table table = read_given_or_own(c.file, identity);
  if (c.format == "tunableop") {
    std::vector<std::string> problems;
    for (const Record& r : table.records())
      if (r.op == "linear") problems.push_back(r.problem);
    AtomicFile file(c.output);
    file.write(measurement::tunable_op_csv(problems));
    return file.commit();
  }
  Table out;
  for (const Record& r : table.records())
    if (c.all || tuning::match(identity, r.device) == tuning::Match::kSame) out.add(r);
  out.write(c.output);
  fmt::print("{} choices to {}\n", out.size(), printable(c.output));
}

void run_merge(const TableCommand& c) {
  Table all;
  for (const std::string& file : c.files) all.merge(Table::read(file));
  all.write(c.output);
  fmt::print("{} choices to {}", all.size(), printable(c.output));
  if (all.bad_lines() > 0) fmt::print(", {} damaged lines left out", all.bad_lines());
  fmt::print("\n");
}

struct Checked {
  Table right;
  size_t wrong = 0, refused = 0, foreign = 0;
};

// Every record that is meant for this device, run and compared.
Checked check(const Table& table, Device& device) {
  const tuning::Identity identity = tuning::identity_of(device);
  Checked out;
  for (const Record& r : table.records()) {
    if (interrupted()) throw CancelledError("cancelled");
    if (tuning::match(identity, r.device) == tuning::Match::kNone) {
      ++out.foreign;
      continue;
    }
    const measurement::Verification v = measurement::verify(device, r);
    if (v.verdict == measurement::Verdict::kRight) {
      out.right.add(r);
      continue;
    }
    const bool wrong = v.verdict == measurement::Verdict::kWrong;
    ++(wrong ? out.wrong : out.refused);
    fmt::print("{}: {} {}: {}: {}\n", wrong ? "WRONG" : "refused", printable(r.op), printable(r.problem),
               printable(r.choice), v.detail);
  }
  return out;
}

void print_checked(const Checked& checked, const Table& table) {
  fmt::print("{} right, {} refused, {} wrong, {} for other devices, {} damaged lines\n", checked.right.size(),
             checked.refused, checked.wrong, checked.foreign, table.bad_lines());
}

void run_verify(const TableCommand& c) {
  Device& device = open_counting_device(c.device);
  const Table table = read_given_or_own(c.file, tuning::identity_of(device));
  const Checked checked = check(table, device);
  print_checked(checked, table);
  require<GenerationError>(checked.wrong == 0, "tune verify: ", checked.wrong, " choices gave wrong results");
}

// Into the user's own table: what is right here, and what is meant for other devices as it is.
void run_import(const TableCommand& c) {
  Device& device = open_counting_device(c.device);
  const Table table = Table::read(c.file);
  Table taken = table;
  if (!c.no_check) {
    const Checked checked = check(table, device);
    print_checked(checked, table);
    taken = checked.right;
  }
  tuning::Journal journal(table_path(c.output, tuning::identity_of(device)));
  for (const Record& r : taken.records()) journal.append(r);
  journal.compact();
  fmt::print("{} choices to {}\n", taken.size(), printable_path(journal.path()));
}

std::shared_ptr<TableCommand> new_command(CLI::App* sub) {
  auto c = std::make_shared<TableCommand>();
  c->device = "auto";
  sub->add_option("--device", c->device, "cpu, auto, hip[:N], cuda[:N] or emu:TARGET [auto]");
  return c;
}

void add_table_commands(CLI::App& tune) {
  CLI::App* sub =
      tune.add_subcommand("show", "print the choices of a table, or those that hold for a device");
  auto c = new_command(sub);
  sub->add_option("FILE", c->file, "a table [the shipped and the user's own]");
  sub->add_option("--op", c->op, "those of one op");
  sub->callback([c] { run_show(*c); });

  sub = tune.add_subcommand("export", "write the device's choices to a file");
  c = new_command(sub);
  sub->add_option("FILE", c->output, "the file to write")->required();
  sub->add_option("--from", c->file, "another table than the device's own");
  sub->add_option("--format", c->format,
                  "table, or tunableop: the matrix products for PyTorch's offline tuning")
      ->check(CLI::IsMember({"table", "tunableop"}));
  sub->add_flag("--all", c->all, "choices for other devices as well");
  sub->callback([c] { run_export(*c); });

  sub = tune.add_subcommand("import",
                            "take a table's choices into the user's own, once each was run and found right");
  c = new_command(sub);
  sub->add_option("FILE", c->file, "a table")->required();
  sub->add_option("--into", c->output, "another table than the user's own");
  sub->add_flag("--no-check", c->no_check,
                "take all of them as they are; they are still refused where an op cannot follow");
  sub->callback([c] { run_import(*c); });

  sub = tune.add_subcommand("merge", "join tables: measured before modelled, newer before older");
  c = std::make_shared<TableCommand>();
  sub->add_option("OUTPUT", c->output, "the file to write")->required();
  sub->add_option("TABLES", c->files, "the tables to join")->required();
  sub->callback([c] { run_merge(*c); });

  sub = tune.add_subcommand("verify", "run the choices of a table and compare each with the reference");
  c = new_command(sub);
  sub->add_option("FILE", c->file, "a table [the shipped and the user's own]");
  sub->callback([c] { run_verify(*c); });
}

}  // namespace

void add_tune(CLI::App& app) {
  auto c = std::make_shared<TuneCommand>();
  CLI::App* sub = app.add_subcommand("tune", "find the fastest kernels for a model's shapes on this device");
  add_problem_options(sub, c->source);
  sub->add_option("--device", c->device, "cpu, auto, hip[:N], cuda[:N] or emu:TARGET [auto]");
  add_seconds(sub, "--budget", c->budget, "stop after this time: 90s, 10m, 2h [when all is done]");
  add_number(sub, "--per-shape", c->per_problem, "seconds of timing for a shape [0.5]", 0, 600);
  sub->add_option("--table", c->table, "another table than the user's own");
  add_number(sub, "--threads", c->threads, "CPU threads [all cores]", 1, 1024);
  sub->add_flag("--again", c->again, "also shapes that the table has");
  sub->add_flag("-q,--quiet", c->quiet, "no progress");
  add_number(
      sub, "--played", c->played,
      "where an emulated device models times (ROCM_SD_EMULATOR_TIME): so many of a problem's candidates "
      "beside the untuned one, the best by the model of --modelled [all]",
      0, 1000);
  auto* modelled =
      sub->add_option("--modelled", c->gpu,
                      "choose for a GPU that is not here, by a model and without running anything: a product "
                      "(\"RX 7900 XTX\") or all of an architecture (gfx1100); needs --table");
  modelled->needs(sub->get_option("--table"));
  sub->require_subcommand(0, 1);
  add_table_commands(*sub);
  sub->callback([c, sub] {
    if (!sub->get_subcommands().empty()) return;
    c->gpu.empty() ? run_tune(*c) : run_modelled_tune(c->source, c->gpu, c->table, c->quiet);
  });
}

}  // namespace rocm_sd::cli
