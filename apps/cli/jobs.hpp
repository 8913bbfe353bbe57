// What a run of rocm-sd generate draws: jobs of options, and the batches that they come to.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "apps/cli/receipts.hpp"
#include "rocm_sd/pipeline.hpp"
#include "text/wildcards.hpp"

namespace rocm_sd::cli {

// Options that hold besides those of the command line: of a line of a file of prompts, a cell of a grid, a
// file of a folder.
struct Job {
  std::vector<OptionValue> set;
  std::string label;  // below its picture in a sheet; empty: the prompt
  std::string input;  // {input} of file names
};

// A file with one prompt a line, or (*.jsonl) one JSON object of options a line. Throws FileError,
// FormatError, UsageError.
std::vector<Job> read_jobs(const std::string& path);
// One job for each picture of the folder, by name: --init-image FOLDER. Throws FileError where there is none.
std::vector<Job> jobs_of_folder(const std::string& folder);
// Each of `outer` with each of `inner`, the inner ones next to each other; an empty list counts as one job
// without options.
std::vector<Job> jobs_of_both(const std::vector<Job>& outer, const std::vector<Job>& inner);

struct Batch {
  size_t job = 0;
  int first = 1, count = 1;  // of its pictures: the number of the first, from 1
  int64_t seed = -1;         // -1: the pipeline's choice
};

// Everything that a run draws, in order.
class Jobs {
 public:
  // options: of the configuration file and the command line, in order; chosen: their names.
  Jobs(std::vector<OptionValue> options, std::vector<Job> jobs, int rounds);

  // wildcards: null for none. seed: of the run, from which random seeds follow, the same for all batches or
  // each its own; null: they are left to the pipeline.
  enum class Seeds { kEachItsOwn, kTheSame };
  void resolve(Wildcards* wildcards, const uint64_t* seed, Seeds seeds);

  const std::vector<Batch>& batches() const { return batches_; }
  int pictures() const { return pictures_; }
  const Job& job(const Batch& batch) const { return jobs_[batch.job]; }
  // The options that draw the batch, with the model's proposal for those that nobody chose.
  std::vector<OptionValue> options(const Batch& batch, const GenerateRequest& proposed) const;
  GenerateRequest request(const Batch& batch, const GenerateRequest& proposed) const;
  // SHA-256 over the options of all batches.
  std::string hash() const;

 private:
  GenerateRequest counted(const Job& job) const;
  void expand_choices(const Batch& batch, std::vector<OptionValue>& options) const;

  std::vector<OptionValue> options_;
  std::vector<Job> jobs_;
  std::vector<Batch> batches_;
  Wildcards* wildcards_ = nullptr;
  int pictures_ = 0;
};

}  // namespace rocm_sd::cli
