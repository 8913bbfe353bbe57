// Prompts that choose at random: "a {red|2::blue} __animal__", read as sd-dynamic-prompts reads them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

// {a|b|c}               one of them; each may have a weight: {3::a|b}, and hold choices itself
// {2$$a|b|c}            two of them, different ones, joined by ", "; {1-2$$a|b|c} one or two
// {2$$ and $$a|b|c}     the same, joined by " and "
// __name__              a line of name.txt below the folder ("animals/birds"), which may hold choices itself;
// empty
//                       lines and those that begin with # do not count
// \{ \| \}              the characters themselves
class Wildcards {
 public:
  // folder: of the files; may be empty, then there are none.
  explicit Wildcards(std::string folder) : folder_(std::move(folder)) {}

  // The same text and seed give the same prompt on every machine. Throws UsageError for braces that do not
  // match, counts that no number is, names without a file, choices nested deeper than 32, and prompts above
  // 32,000 characters; FileError, FormatError where a file cannot be read as text.
  std::string expand(std::string_view text, uint64_t seed);

 private:
  friend class WildcardExpansion;
  const std::vector<std::string>& lines(const std::string& name);

  std::string folder_;
  std::map<std::string, std::vector<std::string>> files_;
};

// True where expand() would change the text.
bool has_choices(std::string_view text);

}  // namespace rocm_sd
