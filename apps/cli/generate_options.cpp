// The options of rocm-sd generate and grid.
#include <cstdlib>

#include "apps/cli/generate_command.hpp"
#include "apps/cli/values.hpp"

namespace rocm_sd::cli {

std::string default_config_path() {
  const char* home = std::getenv("XDG_CONFIG_HOME");
  if (home && *home) return std::string(home) + "/rocm-sd/config.toml";
  home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.config/rocm-sd/config.toml" : "";
}

namespace {

void add_table_options(CLI::App* sub, GenerateCommand* command) {
  for (const OptionRow& row : option_rows()) {
    const std::string names = std::string(row.short_name[0] ? "-" : "") + row.short_name +
                              (row.short_name[0] ? "," : "") + "--" + row.name;
    CLI::Option* option = nullptr;
    const auto take = [command, &row](const std::string& value) { command->set.emplace_back(&row, value); };
    if (row.value[0] == '\0')
      option = sub->add_flag_callback(names, [take] { take("true"); }, row.help);
    else if (row.repeats)
      option = sub->add_option_function<std::vector<std::string>>(
                      names,
                      [take](const std::vector<std::string>& values) {
                        for (const std::string& value : values) take(value);
                      },
                      row.help)
                   ->type_name(row.value)
                   ->expected(1)
                   ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    else
      option = sub->add_option_function<std::string>(names, take, row.help)->type_name(row.value);
    option->group(row.group);
  }
}

void add_many_options(CLI::App* sub, GenerateCommand* command) {
  add_number(sub, "--repeat", command->repeat, "batches to make, with rising seeds [1]", 1, 10000)
      ->option_text("N")
      ->group("Output");
  add_text(sub, "--prompts-file", command->prompts_file,
           "one prompt a line, in place of --prompt, or (.jsonl) one JSON object of options a line; every "
           "line begins "
           "with the same seed")
      ->type_name("FILE")
      ->group("Output");
  add_text(sub, "--preview-path", command->preview_path, "file that --preview writes, anew each time")
      ->option_text("FILE [preview.png]")
      ->group("Output");
  sub->add_option("--preview-terminal", command->preview_terminal,
                  "show previews in the terminal: auto (asks it), kitty, iterm, sixel [auto]; without "
                  "--preview they are proj")
      ->expected(0, 1)
      ->default_str("auto")
      ->type_name("FORM")
      ->group("Output");
  add_text(sub, "--wildcard-dir", command->wildcard_dir,
           "choose at random in prompts: {a|b}, {2$$a|b|c}, __name__ for a line of name.txt in this folder")
      ->type_name("FOLDER")
      ->group("Output");
  sub->add_flag("--dynamic-prompts", command->dynamic_prompts, "the same without a folder: {a|b}, {2$$a|b|c}")
      ->group("Output");
  add_text(sub, "--journal", command->journal,
           "note here what is written: the same command goes on where it was interrupted")
      ->type_name("FILE")
      ->group("Output");
}

}  // namespace

void add_generate_options(CLI::App* sub, GenerateCommand* command) {
  add_table_options(sub, command);
  add_many_options(sub, command);
  add_number(sub, "--quality", command->quality, "JPEG and WebP, 1 to 100 (WebP 100: lossless) [95]", 1, 100)
      ->option_text("N")
      ->group("Output");
  sub->add_flag("--no-metadata", command->no_metadata, "leave parameters and receipt out of the file")
      ->group("Output");
  sub->add_flag("--no-receipt", command->no_receipt,
                "leave the receipt out of the file (rocm-sd reproduce needs it)")
      ->group("Output");
  sub->add_option("--progress", command->progress,
                  "auto (bar on a terminal, else line), bar, line (one per picture), plain (one per step), "
                  "json, none [auto]")
      ->type_name("FORM")
      ->group("Output");
  sub->add_flag("-q,--quiet", command->quiet, "print file names only")->group("Output");
  sub->add_flag("--plan", command->plan_only, "print the memory plan and stop")->group("Output");
  sub->add_flag("--compare-exact", command->compare_exact,
                "draw each picture without its savings, too, and print PSNR, SSIM, FLIP and both times")
      ->group("Savings");
  sub->add_flag("--profile", command->profile, "print time, GFLOP/s and GB/s per operation")->group("Output");
  add_text(sub, "--trace", command->trace, "write a Chrome trace (JSON) of every operation")
      ->type_name("FILE")
      ->group("Output");
  add_seconds(sub, "--tune", command->tune,
              "look so long after each picture for faster kernels for its shapes: 5, 5s, 2m")
      ->option_text("TIME")
      ->group("Advanced");
  add_number(sub, "--threads", command->threads, "CPU threads [all cores]", 1, 1024)
      ->option_text("N")
      ->group("Advanced");
  add_text(sub, "--config", command->config,
           "TOML file with options as name = value lines [" + default_config_path() + "]")
      ->type_name("FILE")
      ->group("Advanced");
}

void take_last(CLI::App* sub) {
  for (CLI::Option* option : sub->get_options())
    if (option->get_multi_option_policy() != CLI::MultiOptionPolicy::TakeAll)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace rocm_sd::cli
