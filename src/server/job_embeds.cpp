// What image encoders and face models gave, as clients send it for IP-Adapters: numbers, or files in base64.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "pipeline/ip_request.hpp"
#include "server/http.hpp"
#include "server/job_request.hpp"
#include "server/worker_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxFaces = 16, kMaxWidth = 65536;

// One tensor of f32 in a .safetensors file.
std::string safetensors_of(const ImageEmbeds& embeds) {
  const size_t bytes = embeds.values.size() * sizeof(float);
  std::string header =
      json{{"embeds", {{"dtype", "F32"}, {"shape", embeds.shape}, {"data_offsets", {size_t{0}, bytes}}}}}
          .dump();
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  std::string out(sizeof(length) + header.size() + bytes, '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  std::memcpy(out.data() + sizeof(length), header.data(), header.size());
  std::memcpy(out.data() + sizeof(length) + header.size(), embeds.values.data(), bytes);
  return out;
}

}  // namespace

// The only tensor of a .safetensors file or one of torch.save, in base64.
ImageEmbeds RequestBuilder::embeds_of_file(const std::string& field, std::string_view base64) const {
  const std::optional<std::string> bytes = decode_base64(base64);
  if (!bytes) refuse(field, "expected base64");
  const MemoryFile file(*bytes);
  try {
    return load_image_embeds(file.path());
  } catch (const Error& e) {  // without the path, which says nothing to a client
    std::string message = e.what();
    if (const size_t at = message.find(file.path() + ": "); at != message.npos)
      message.erase(at, file.path().size() + 2);
    refuse(field, message);
  }
}

// A list of numbers, into the row of one face.
void RequestBuilder::add_face(const std::string& field, const json& row, ImageEmbeds& to) const {
  if (!row.is_array() || row.empty() || row.size() > kMaxWidth)
    refuse(field, concat("expected a list of 1 to ", kMaxWidth, " numbers"));
  const auto width = static_cast<int64_t>(row.size());
  if (to.shape[0] > 0 && width != to.shape[1])
    refuse(field, concat("expected ", to.shape[1], " numbers, as many as the first has, got ", width));
  to.shape = {to.shape[0] + 1, width};
  for (size_t i = 0; i < row.size(); ++i)
    to.values.push_back(static_cast<float>(number(concat(field, "[", i, "]"), row[i])));
}

void RequestBuilder::read_embeds(const std::string& field, const json& value, AskedIpAdapter& adapter) const {
  ImageEmbeds embeds{{0, 0}, {}};
  if (value.is_string()) {
    embeds = embeds_of_file(field, value.get<std::string>());
  } else {
    if (!value.is_array() || value.empty() || value.size() > kMaxFaces)
      refuse(field, concat("expected a file in base64, or a list of 1 to ", kMaxFaces,
                           " lists of numbers or files, one for each face"));
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string place = concat(field, "[", i, "]");
      if (!value[i].is_string()) {
        add_face(place, value[i], embeds);
        continue;
      }
      ImageEmbeds one = embeds_of_file(place, value[i].get<std::string>());
      if (value.size() == 1) {
        embeds = std::move(one);
        break;
      }
      if (one.shape.size() != 2 || one.shape[0] != 1)
        refuse(place, "expected one embedding, [1,width], in each of several files");
      if (i > 0 && one.shape[1] != embeds.shape[1])
        refuse(place, concat("expected ", embeds.shape[1], " numbers, as many as the first has, got ",
                             one.shape[1]));
      embeds.shape = {embeds.shape[0] + 1, one.shape[1]};
      embeds.values.insert(embeds.values.end(), one.values.begin(), one.values.end());
    }
  }
  adapter.faces = embeds.shape.size() == 2 ? static_cast<size_t>(embeds.shape[0]) : 0;
  adapter.embeds = safetensors_of(embeds);
}

}  // namespace rocm_sd::server
