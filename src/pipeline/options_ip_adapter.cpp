// The options of IP-Adapters.
#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "pipeline/ip_request.hpp"
#include "pipeline/option_tables.hpp"

namespace rocm_sd::option_tables {
namespace {

// The n-th time an option is given it belongs to the n-th adapter: the first that lacks it.
template <class Lacks>
IpAdapterUse& adapter_without(OptionTargets& t, const Lacks& lacks) {
  require<UsageError>(t.request != nullptr, "belongs to a request, not to loading");
  std::vector<IpAdapterUse>& adapters = t.request->ip_adapters;
  for (IpAdapterUse& use : adapters)
    if (lacks(use)) return use;
  require<UsageError>(adapters.size() < kMaxIpAdapters, "given more than ", kMaxIpAdapters, " times");
  return adapters.emplace_back();
}

Setter adapter_number(std::optional<double> IpAdapterUse::* field, double least, double most) {
  return [=](OptionTargets& t, std::string_view v) {
    const double value = parse_number(v, least, most);
    adapter_without(t, [field](const IpAdapterUse& use) { return !(use.*field); }).*field = value;
  };
}

// One file, or several with commas between them.
std::vector<Image> load_images(std::string_view list) {
  if (list.empty() || path_exists(std::string(list))) return {read_picture(list)};
  std::vector<Image> out;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    out.push_back(read_picture(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  return out;
}

void set_model(OptionTargets& t, std::string_view v) {
  require<UsageError>(!v.empty(), "expected a file, got an empty text");
  adapter_without(t, [](const IpAdapterUse& use) { return use.model.empty(); }).model = v;
}

bool lacks_image(const IpAdapterUse& use) { return use.images.empty() && use.each.empty() && !use.embeds; }

// By the file's name, or, of one without an ending, by what it begins with: a header's length and its brace.
bool holds_embeds(const std::string& path) {
  if (path.ends_with(".safetensors")) return true;
  if (std::filesystem::path(path).has_extension() || !path_exists(path)) return false;
  const InputFile file(path);
  char head[9] = {};
  if (file.size() < sizeof(head)) return false;
  file.read_at(0, head, sizeof(head));
  return head[8] == '{';
}

void set_images(OptionTargets& t, std::string_view v) {
  if (is_folder_path(std::string(v))) {
    std::vector<std::vector<Image>> each;
    for (Image& image : load_image_folder(std::string(v))) each.push_back({std::move(image)});
    adapter_without(t, lacks_image).each = std::move(each);
    return;
  }
  // The last of several may be FaceID Plus's embedding.
  std::optional<ImageEmbeds> embeds;
  const size_t comma = v.rfind(',');
  if (comma != v.npos && !path_exists(std::string(v)) && holds_embeds(std::string(v.substr(comma + 1)))) {
    embeds = load_image_embeds(std::string(v.substr(comma + 1)));
    v = v.substr(0, comma);
  }
  std::vector<Image> images = load_images(v);
  IpAdapterUse& use = adapter_without(t, lacks_image);
  use.images = std::move(images);
  use.embeds = std::move(embeds);
}

void set_embeds(OptionTargets& t, std::string_view v) {
  ImageEmbeds embeds = load_image_embeds(std::string(v));
  adapter_without(t, lacks_image).embeds = std::move(embeds);
}

void set_masks(OptionTargets& t, std::string_view v) {
  std::vector<Image> masks = load_images(v);
  adapter_without(t, [](const IpAdapterUse& use) { return use.masks.empty(); }).masks = std::move(masks);
}

void set_encoder(OptionTargets& t, std::string_view v) {
  require<UsageError>(!v.empty(), "expected a file or folder, got an empty text");
  adapter_without(t, [](const IpAdapterUse& use) { return !use.image_encoder; }).image_encoder =
      std::string(v);
}

}  // namespace

std::vector<OptionRow> ip_adapter_options() {
  return {
      {"ip-adapter", "", "IP-Adapter", "FILE",
       "an image as a prompt: plain, Plus, Full or FaceID adapter; may be given several times, and then the "
       "first of the options below belongs to the first, and so on",
       set_model, true},
      {"ip-image", "", "IP-Adapter", "FILE[,FILE]",
       "the image, or several that count as one prompt; of a folder one image for each of the batch; for "
       "FaceID "
       "Plus the last is a .safetensors file with the faces' embeddings",
       set_images, true},
      {"ip-embeds", "", "IP-Adapter", "FILE",
       "in place of images: what an image encoder or, for FaceID, a face model gave of them (.safetensors)",
       set_embeds, true},
      {"ip-weight", "", "IP-Adapter", "X", "factor of what it adds to cross attention [1]",
       adapter_number(&IpAdapterUse::weight, -10, 10), true},
      {"ip-start", "", "IP-Adapter", "X", "share of the steps after which it acts [0]",
       adapter_number(&IpAdapterUse::start, 0, 1), true},
      {"ip-end", "", "IP-Adapter", "X", "share of the steps up to which it acts [1]",
       adapter_number(&IpAdapterUse::end, 0, 1), true},
      {"ip-mask", "", "IP-Adapter", "FILE[,FILE]",
       "where each of its images acts: white, from half of it on [everywhere]", set_masks, true},
      {"image-encoder", "", "IP-Adapter", "PATH",
       "CLIP image encoder, a folder or a .safetensors file [image_encoder beside the adapter, or the "
       "model's]",
       set_encoder, true},
  };
}

}  // namespace rocm_sd::option_tables
