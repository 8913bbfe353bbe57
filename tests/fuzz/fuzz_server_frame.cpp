// Fuzzes frames between the supervisor and a worker: a stream gives the same frames, or the same refusal, in
// whatever pieces it comes, and an order that a frame holds is read or refused by an Error. Options that
// name files of the machine are left out: an order's files are bytes of its frame.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/options.hpp"
#include "server/frame.hpp"
#include "server/worker_request.hpp"

namespace {

using namespace rocm_sd;
using namespace rocm_sd::server;
using nlohmann::json;

constexpr size_t kLongestPiece = 37;

void check(bool ok) {
  if (!ok) std::abort();
}

struct Stream {
  std::vector<Frame> frames;
  bool refused = false;
};

Stream read_in_pieces(std::string_view text, size_t piece) {
  Stream out;
  FrameReader reader;
  try {
    do {
      reader.append(text.substr(0, piece));
      text.remove_prefix(std::min(piece, text.size()));
      while (auto frame = reader.next()) out.frames.push_back(std::move(*frame));
    } while (!text.empty());
  } catch (const FormatError&) {
    out.refused = true;
  }
  return out;
}

bool names_files(const std::string& option) {
  for (const OptionRow& row : option_rows()) {
    if (option != row.name) continue;
    const std::string_view value = row.value;
    return option == "lora" || value.find("FILE") != value.npos || value.find("PATH") != value.npos ||
           value.find("FOLDER") != value.npos;
  }
  return false;
}

void read_as_order(const Frame& frame) {
  json head = json::parse(frame.json, nullptr, false);
  if (!head.is_object() || !head.contains("options") || !head["options"].is_array()) return;
  json kept = json::array();
  for (const json& option : head["options"])
    if (option.is_array() && !option.empty() && option[0].is_string() && !names_files(option[0]))
      kept.push_back(option);
  head["options"] = kept;
  try {
    read_order({}, head, frame.bytes);
  } catch (const Error&) {
  } catch (const json::exception&) {    // a head of another form, which ends the worker's job
  } catch (const std::out_of_range&) {  // files beyond the frame's bytes, likewise
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Stream whole = read_in_pieces(text, text.size() + 1);
  const Stream parts = read_in_pieces(text, 1 + data[0] % kLongestPiece);
  check(whole.refused == parts.refused && whole.frames.size() == parts.frames.size());
  size_t used = 0;
  for (size_t i = 0; i < whole.frames.size(); ++i) {
    check(whole.frames[i].json == parts.frames[i].json && whole.frames[i].bytes == parts.frames[i].bytes);
    used += 8 + whole.frames[i].json.size() + whole.frames[i].bytes.size();
    read_as_order(whole.frames[i]);
  }
  check(used <= text.size());
  return 0;
}
