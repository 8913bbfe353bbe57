// Parsing of tokenizer files; see vocabulary_files.hpp.
#include "text/vocabulary_files.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "base/utf8.hpp"

namespace rocm_sd {
namespace {

using Json = nlohmann::json;
using Merges = std::vector<std::pair<std::string, std::string>>;
namespace fs = std::filesystem;

Json parse_object(std::string_view text, std::string_view name) {
  Json json = parse_json(text, {.max_bytes = kMaxVocabularyFile, .max_values = 4 * kMaxTokens},
                         printable(name, 1024));
  require<FormatError>(json.is_object(), printable(name), ": expected a JSON object, found ",
                       json.type_name());
  return json;
}

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void check_token(std::string_view token, std::string_view name) {
  require<FormatError>(!token.empty() && token.size() <= kMaxTokenBytes, printable(name), ": token \"",
                       printable(token, 40), "\" has ", token.size(), " bytes; 1 to ", kMaxTokenBytes,
                       " are allowed");
}

int32_t token_id_of(const Json& value, std::string_view token, std::string_view name) {
  const bool whole =
      value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > kMaxTokens);
  const int64_t id = whole ? value.get<int64_t>() : -1;
  require<FormatError>(id >= 0 && id < static_cast<int64_t>(kMaxTokens), printable(name), ": token \"",
                       printable(token, 40), "\" has the id ", printable(value.dump(), 40),
                       "; expected a whole number below ", kMaxTokens);
  return static_cast<int32_t>(id);
}

void read_vocabulary(const Json& json, std::string_view name, Vocabulary& vocabulary) {
  require<FormatError>(json.is_object() && !json.empty() && json.size() <= kMaxTokens, printable(name),
                       ": expected an object of 1 to ", kMaxTokens, " tokens and their ids");
  std::vector<bool> taken(kMaxTokens);
  vocabulary.reserve(json.size());
  for (const auto& [token, value] : json.items()) {
    check_token(token, name);
    const int32_t id = token_id_of(value, token, name);
    require<FormatError>(!taken[id], printable(name), ": two tokens have the id ", id, "; one is \"",
                         printable(token, 40), "\"");
    taken[id] = true;
    vocabulary.emplace(token, id);
  }
}

std::pair<std::string, std::string> split_merge(std::string_view line, size_t number, std::string_view name) {
  const size_t space = line.find(' ');
  const bool two = space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos;
  require<FormatError>(two && space > 0 && space + 1 < line.size(), printable(name), ": merge ", number,
                       ": expected two tokens with a space between, found \"", printable(line, 80), "\"");
  check_token(line.substr(0, space), name);
  check_token(line.substr(space + 1), name);
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

// A special token in a configuration: a string, or an object with "content" and "normalized".
std::optional<AddedToken> special_token(const Json& json, const char* key, std::string_view name) {
  const Json* value = member(json, key);
  if (value == nullptr) return std::nullopt;
  const Json* content = value->is_object() ? member(*value, "content") : value;
  require<FormatError>(content != nullptr && content->is_string(), printable(name), ": \"", printable(key),
                       "\" is neither a string nor a token object with \"content\"");
  AddedToken token{.content = content->get<std::string>()};
  check_token(token.content, name);
  const auto flag = [&](const char* which) {
    const Json* on = member(*value, which);
    return on != nullptr && on->is_boolean() && on->get<bool>();
  };
  token.normalized = flag("normalized");
  if (flag("lstrip") || flag("rstrip") || flag("single_word"))
    log().warn("{}: lstrip, rstrip and single_word of the token \"{}\" are not supported and ignored",
               printable(name), printable(token.content, 40));
  return token;
}

void add_token(TokenizerFiles& files, const AddedToken& token) {
  const auto same = [&](const AddedToken& other) { return other.content == token.content; };
  if (std::any_of(files.added.begin(), files.added.end(), same)) return;  // the first one stays
  require<FormatError>(files.added.size() < kMaxAddedTokens, printable(files.name), ": more than ",
                       kMaxAddedTokens, " added tokens");
  files.added.push_back(token);
}

// "added_tokens_decoder": {"49406": {"content": ...}, ...}, added in the order of the ids.
void read_added_tokens_decoder(const Json& json, TokenizerFiles& files) {
  require<FormatError>(json.is_object() && json.size() <= kMaxAddedTokens, printable(files.name),
                       ": added_tokens_decoder: expected an object of at most ", kMaxAddedTokens, " tokens");
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [key, value] : json.items()) {
    const bool digits =
        !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    require<FormatError>(digits, printable(files.name), ": added_tokens_decoder: \"", printable(key, 40),
                         "\" is no token id");
    order.emplace_back(std::stoll(key), key);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [id, key] : order)
    if (const auto token = special_token(json, key.c_str(), files.name)) add_token(files, *token);
}

// added_tokens.json, the older form: {"<cat-toy>": 49408}.
void read_added_tokens_json(const Json& json, TokenizerFiles& files) {
  require<FormatError>(json.size() <= kMaxAddedTokens, printable(files.name),
                       ": added_tokens.json: more than ", kMaxAddedTokens, " tokens");
  std::vector<std::pair<int32_t, std::string>> order;
  for (const auto& [content, id] : json.items()) {
    check_token(content, files.name);
    order.emplace_back(token_id_of(id, content, files.name), content);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [id, content] : order) {
    const std::string* named[] = {&files.bos, &files.eos, &files.unknown, &files.pad};
    const bool special =
        std::any_of(std::begin(named), std::end(named), [&](const auto* n) { return *n == content; });
    add_token(files, {.content = content, .normalized = !special});
  }
}

// The named special tokens in the order in which the reference adds them.
struct NamedTokens {
  struct Role {
    const char* key;
    std::string TokenizerFiles::* content;
    AddedToken token;
  };
  std::array<Role, 4> roles = {
      Role{"bos_token", &TokenizerFiles::bos}, Role{"eos_token", &TokenizerFiles::eos},
      Role{"unk_token", &TokenizerFiles::unknown}, Role{"pad_token", &TokenizerFiles::pad}};

  explicit NamedTokens(const TokenizerFiles& files) {
    for (Role& role : roles) role.token.content = files.*role.content;
  }
  void read(const Json& json, TokenizerFiles& files) {
    for (Role& role : roles) {
      auto token = special_token(json, role.key, files.name);
      if (!token) continue;
      role.token = std::move(*token);
      files.*role.content = role.token.content;
    }
  }
  // Tokens that the files list explicitly keep their form; of two roles with one text the later one's form
  // counts.
  void add_to(TokenizerFiles& files) const {
    const size_t listed = files.added.size();
    for (const Role& role : roles) {
      const auto same = [&](const AddedToken& other) { return other.content == role.token.content; };
      const auto found = std::find_if(files.added.begin(), files.added.end(), same);
      if (found == files.added.end())
        add_token(files, role.token);
      else if (static_cast<size_t>(found - files.added.begin()) >= listed)
        found->normalized = role.token.normalized;
    }
  }
};

}  // namespace

void read_vocab_json(std::string_view text, std::string_view name, Vocabulary& vocabulary) {
  read_vocabulary(parse_object(text, name), name, vocabulary);
}

void read_merges(std::string_view text, std::string_view name, Merges& merges) {
  require<FormatError>(is_valid_utf8(text), printable(name), ": not valid UTF-8");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    require<FormatError>(merges.size() < kMaxTokens, printable(name), ": more than ", kMaxTokens, " merges");
    merges.push_back(split_merge(line, merges.size() + 1, name));
  }
}

TokenizerFiles read_tokenizer_json(std::string_view text, std::string_view name) {
  const Json json = parse_object(text, name);
  TokenizerFiles files{.name = std::string(name)};
  const Json* model = member(json, "model");
  require<FormatError>(model != nullptr && model->is_object(), printable(name), ": no \"model\" object");
  if (const Json* type = member(*model, "type"))
    require<FormatError>(*type == "BPE", printable(name), ": the model is ", printable(type->dump(), 40),
                         ", expected \"BPE\"");
  const Json* vocabulary = member(*model, "vocab");
  const Json* merges = member(*model, "merges");
  require<FormatError>(vocabulary != nullptr && merges != nullptr && merges->is_array(), printable(name),
                       ": \"model\" lacks \"vocab\" or a list of \"merges\"");
  read_vocabulary(*vocabulary, name, files.vocabulary);
  require<FormatError>(merges->size() <= kMaxTokens, printable(name), ": more than ", kMaxTokens, " merges");
  for (const Json& merge : *merges) {
    if (merge.is_string()) {
      files.merges.push_back(split_merge(merge.get_ref<const std::string&>(), files.merges.size() + 1, name));
      continue;
    }
    require<FormatError>(
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
        printable(name), ": merge ", files.merges.size() + 1, " is not a pair of tokens");
    files.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    check_token(files.merges.back().first, name);
    check_token(files.merges.back().second, name);
  }
  if (const Json* added = member(json, "added_tokens")) {
    require<FormatError>(added->is_array(), printable(name), ": \"added_tokens\" is no list");
    for (const Json& entry : *added) {
      const Json wrapped = {{"added_tokens", entry}};
      if (const auto token = special_token(wrapped, "added_tokens", name)) add_token(files, *token);
    }
  }
  return files;
}

void read_tokenizer_config(const ConfigTexts& texts, TokenizerFiles& files) {
  const auto parse = [&](const std::optional<std::string>& text) {
    return text ? parse_object(*text, files.name) : Json::object();
  };
  const Json config = parse(texts.tokenizer_config);
  NamedTokens named(files);
  named.read(config, files);
  if (const Json* decoder = member(config, "added_tokens_decoder")) {
    files.added.clear();  // this list stands in for tokenizer.json's and for the older files
    read_added_tokens_decoder(*decoder, files);
  } else {
    named.read(parse(texts.special_tokens_map), files);
    read_added_tokens_json(parse(texts.added_tokens), files);
  }
  named.add_to(files);
  if (const Json* length = member(config, "model_max_length");
      length != nullptr && length->is_number_integer()) {
    const auto value = length->get<int64_t>();  // "no limit" is written as a huge number
    if (value >= 3 && value <= 65536) files.max_length = static_cast<int>(value);
  }
}

Vocabulary vocabulary_from_merges(const Merges& merges, std::string_view name) {
  Vocabulary vocabulary;
  const auto symbols = byte_symbols();
  int32_t next = 0;
  for (const char* suffix : {"", "</w>"})
    for (const uint8_t byte : byte_order()) vocabulary.emplace(symbols[byte] + suffix, next++);
  require<FormatError>(merges.size() <= kMaxTokens - 514, printable(name), ": too many merges");
  for (const auto& [left, right] : merges) {
    const bool added = vocabulary.emplace(left + right, next++).second;
    require<FormatError>(added, printable(name), ": two merges make the token \"",
                         printable(left + right, 40),
                         "\", so that ids cannot be counted from the merges alone");
  }
  for (const char* special : {"<|startoftext|>", "<|endoftext|>"}) vocabulary.emplace(special, next++);
  return vocabulary;
}

void resolve_added_tokens(TokenizerFiles& files) {
  for (const std::string* content : {&files.bos, &files.eos, &files.unknown}) {
    require<FormatError>(files.vocabulary.contains(*content), printable(files.name), ": the special token \"",
                         printable(*content, 40), "\" is not in the vocabulary");
  }
  for (const std::string* content : {&files.bos, &files.eos, &files.unknown, &files.pad})
    add_token(files, {.content = *content});
  const auto size = static_cast<int32_t>(files.vocabulary.size());
  int32_t highest = -1;
  for (AddedToken& token : files.added) {
    const auto found = files.vocabulary.find(token.content);
    token.id = found != files.vocabulary.end() ? found->second : std::max(highest + 1, size);
    highest = std::max(highest, token.id);
  }
}

std::optional<std::string> read_text_file(const fs::path& file, size_t max_bytes) {
  if (!path_exists(file)) return std::nullopt;
  std::string text = read_file(file, max_bytes);
  require<FormatError>(!text.starts_with("version https://git-lfs"), printable_path(file),
                       ": a Git LFS pointer, not the file itself; run \"git lfs pull\" where it came from");
  require<FormatError>(is_valid_utf8(text), printable_path(file), ": not valid UTF-8");
  return text;
}

// Every token of more than one symbol comes from a merge, but for those that are added whole. Where some do
// not, merges.txt is empty, cut short or another model's, and words would be divided into other tokens
// without a word.
void require_merges(const TokenizerFiles& files, const std::string& merges_file) {
  std::unordered_set<std::string> made;
  for (const auto& [left, right] : files.merges) made.insert(left + right);
  for (const AddedToken& token : files.added) made.insert(token.content);
  size_t without = 0;
  std::string first;
  for (const auto& [token, id] : files.vocabulary) {
    std::string_view symbols = token;
    if (symbols.ends_with("</w>") && symbols.size() > 4) symbols.remove_suffix(4);
    if (decode_utf8(symbols, 0).length == symbols.size() || made.contains(token)) continue;
    if (without++ == 0 || token < first) first = token;
  }
  require<FormatError>(without == 0, printable(merges_file, 1024), ": its ", files.merges.size(),
                       " merges make ", without, " of the ", files.vocabulary.size(),
                       " tokens of vocab.json not, such as \"", printable(first, 40),
                       "\"; the file is cut short, or of another vocabulary");
}

TokenizerFiles read_tokenizer_folder(const fs::path& folder) {
  const auto vocab = read_text_file(folder / "vocab.json");
  const auto merges = read_text_file(folder / "merges.txt");
  const std::string name = folder.string();
  TokenizerFiles files;
  // tokenizer.json comes first, as in transformers.
  if (const auto whole = read_text_file(folder / "tokenizer.json")) {
    files = read_tokenizer_json(*whole, (folder / "tokenizer.json").string());
  } else {
    require<FileError>(vocab && merges, printable(name, 1024),
                       ": no tokenizer: expected vocab.json and merges.txt, or tokenizer.json");
    read_vocab_json(*vocab, (folder / "vocab.json").string(), files.vocabulary);
    read_merges(*merges, (folder / "merges.txt").string(), files.merges);
  }
  files.name = name;
  read_tokenizer_config({.tokenizer_config = read_text_file(folder / "tokenizer_config.json"),
                         .special_tokens_map = read_text_file(folder / "special_tokens_map.json"),
                         .added_tokens = read_text_file(folder / "added_tokens.json")},
                        files);
  resolve_added_tokens(files);
  if (!path_exists(folder / "tokenizer.json")) require_merges(files, (folder / "merges.txt").string());
  return files;
}

}  // namespace rocm_sd
