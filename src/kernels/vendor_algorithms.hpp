// The ways that a vendor's library has of computing an op's problems on one device: prepared while planning,
// kept as long as the device.
#pragma once

#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/select.hpp"
#include "runtime/library_host.hpp"
#include "vendor/library.hpp"

namespace rocm_sd {

template <class Way>
struct FoundAlgorithms {
  std::vector<std::shared_ptr<Way>> ways;  // the library's favourite first
  Refusal refusal;                         // why there are none
};

// The place of a way in the library's ranking, from its name in a table ("3"); nothing if that is no number.
inline std::optional<size_t> way_index(const std::string& config) {
  size_t index = 0;
  const char* const end = config.data() + config.size();
  const auto [at, error] = std::from_chars(config.data(), end, index);
  if (error != std::errc() || at != end) return std::nullopt;
  return index;
}

// Library: a MatmulLibrary or ConvLibrary, Way: its Matmul or Convolution.
template <class Library, class Way>
class VendorAlgorithms {
 public:
  using Open = std::shared_ptr<Library> (*)();

  // Of this library on the device of `host`: the same object for every caller.
  static std::shared_ptr<VendorAlgorithms> on(LibraryHost& host, const char* name, Open open) {
    host.library_stream();  // the device is current: the handle is made for it
    return std::static_pointer_cast<VendorAlgorithms>(
        host.kept(concat("vendor ", name), [&] { return std::make_shared<VendorAlgorithms>(open); }));
  }
  explicit VendorAlgorithms(Open open) {
    try {
      library_ = open();
    } catch (const vendor::LibraryError& error) {
      problem_ = error.what();
    }
  }

  Library* library() const { return library_.get(); }  // null: problem() says why
  const std::string& problem() const { return problem_; }

  // What `make` gives for this key, asked once; LibraryError becomes the refusal.
  template <class Make>
  const FoundAlgorithms<Way>& find(const std::string& key, const Make& make) {
    const std::lock_guard lock(mutex_);
    auto found = found_.find(key);
    if (found != found_.end()) return found->second;
    FoundAlgorithms<Way> made;
    if (!library_) {
      made.refusal = problem_;
    } else {
      try {
        made.ways = make(*library_);
        if (made.ways.empty()) made.refusal = "the library has no way of computing it";
      } catch (const vendor::LibraryError& error) {
        made.refusal = error.what();
      } catch (const OutOfMemoryError& error) {  // of a search
        made.refusal = error.what();
      }
    }
    return found_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::shared_ptr<Library> library_;
  std::string problem_;
  std::mutex mutex_;
  std::map<std::string, FoundAlgorithms<Way>>
      found_;  // nodes stay where they are; ways go before the library
};

}  // namespace rocm_sd
