// Byte-pair encoding with a heap of candidate merges: n log n in the length of the word.
#include "text/bpe.hpp"

#include <queue>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace rocm_sd {
namespace {

constexpr std::string_view kWordEnd = "</w>";

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

int32_t find_id(const Vocabulary& vocabulary, const std::string& token) {
  const auto found = vocabulary.find(token);
  return found == vocabulary.end() ? -1 : found->second;
}

}  // namespace

std::array<uint8_t, 256> byte_order() {
  std::array<uint8_t, 256> order{};
  size_t at = 0;
  for (const bool itself : {true, false})
    for (int byte = 0; byte < 256; ++byte)
      if (stands_for_itself(byte) == itself) order[at++] = static_cast<uint8_t>(byte);
  return order;
}

std::array<std::string, 256> byte_symbols() {
  std::array<std::string, 256> symbols;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    append_utf8(symbols[byte], stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++);
  return symbols;
}

Bpe::Bpe(const Vocabulary& vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
         int32_t unknown_id, std::string_view name) {
  const auto symbols = byte_symbols();
  for (int byte = 0; byte < 256; ++byte) {
    inner_[byte] = find_id(vocabulary, symbols[byte]);
    final_[byte] = find_id(vocabulary, symbols[byte] + std::string(kWordEnd));
    for (int32_t* id : {&inner_[byte], &final_[byte]}) {
      if (*id < 0) *id = unknown_id;
      require<FormatError>(*id >= 0, printable(name), ": no token for the byte ", byte,
                           " and no unknown token");
    }
  }
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const int32_t left_id = find_id(vocabulary, left), right_id = find_id(vocabulary, right);
    const int32_t joined = find_id(vocabulary, left + right);
    require<FormatError>(left_id >= 0 && right_id >= 0 && joined >= 0, printable(name), ": merge ", rank + 1,
                         " (\"", printable(left), "\" \"", printable(right),
                         "\") names or makes a token that the vocabulary lacks");
    merges_[pair_key(left_id, right_id)] = {static_cast<int32_t>(rank),
                                            joined};  // the last of equal pairs counts
  }
}

const Bpe::Merge* Bpe::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id, previous, next;
    bool gone;
  };
  struct Candidate {
    Merge merge;
    int32_t at;
    bool operator<(const Candidate& other) const {  // std::priority_queue hands out the largest
      return merge.rank != other.merge.rank ? merge.rank > other.merge.rank : at > other.at;
    }
  };
  const auto count = static_cast<int32_t>(word.size());
  if (count == 0) return;
  std::vector<Symbol> symbols(word.size());
  for (int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[i]);
    symbols[i] = {i + 1 == count ? final_[byte] : inner_[byte], i - 1, i + 1 == count ? -1 : i + 1, false};
  }
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t at) {
    if (at < 0 || symbols[at].next < 0) return;
    if (const Merge* merge = find(symbols[at].id, symbols[symbols[at].next].id)) queue.push({*merge, at});
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.at];
    if (left.gone || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    const Merge* now = find(left.id, right.id);
    if (now == nullptr || now->id != top.merge.id) continue;  // an earlier merge took one of the two
    left.id = top.merge.id;
    right.gone = true;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.at;
    consider(left.previous);
    consider(top.at);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace rocm_sd
