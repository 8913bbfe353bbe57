// The journal of a run of many pictures: which batches are written, so that the next run goes on where one
// was killed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rocm_sd::cli {

// A file of lines of JSON: the first says which run it is, each other one which batch's files are in place. A
// batch is noted after its files are; what was under way when the program was killed is drawn again, under
// the same names.
class Journal {
 public:
  // Opens the file, or begins it with a random seed. Throws FileError, and FormatError for a file that is no
  // journal; a last line that was cut off does not count.
  explicit Journal(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  uint64_t seed() const { return seed_; }  // of the run: random seeds and choices follow from it
  // hash: over everything that decides about the pictures. Throws UsageError where the journal is another
  // run's.
  void begin(const std::string& hash);
  // The batch's files, or null where it is not noted or one of them is gone.
  const std::vector<std::string>* files(size_t batch) const;
  // Written to the disk when this returns. For one thread at a time.
  void note(size_t batch, const std::vector<std::string>& files);

 private:
  void read(const std::string& text);
  void append(const std::string& line);

  std::string path_, hash_;
  uint64_t seed_ = 0;
  std::map<size_t, std::vector<std::string>> done_;
  int descriptor_ = -1;
};

}  // namespace rocm_sd::cli
