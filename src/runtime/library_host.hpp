// A GPU on which the vendor's own libraries (cuBLASLt, MIOpen ...) can work beside our kernels: on the same
// stream, with what they keep freed before the device is.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/device.hpp"

namespace rocm_sd {

class LibraryHost {
 public:
  virtual ~LibraryHost() = default;

  // Makes the device current for the calling thread, as a library finds it, and gives the driver's handle of
  // the stream that launches go to. Inside a capture work put there is captured.
  virtual void* library_stream() = 0;
  virtual bool hosts_libraries() const = 0;  // false: its driver is none that libraries know

  // What `make` made for this key on first use. Thread-safe; make must not call kept(). An error of make is
  // the caller's, and it is made again next time.
  std::shared_ptr<void> kept(const std::string& key, const std::function<std::shared_ptr<void>()>& make);

 protected:
  void forget_kept() { kept_.clear(); }  // with the device current

 private:
  std::mutex keeping_;
  std::map<std::string, std::shared_ptr<void>> kept_;
};

// Null where the device is none: the host, an emulated GPU, a recorder of launches.
LibraryHost* library_host(Device& device);

}  // namespace rocm_sd
