// ParallelUpload: tensors that several threads read from a file at once, straight into pinned memory, and
// copy to a GPU. One thread reads a file that the system has in its cache at 5 GB/s; the bus takes 25 to 60.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/side_copies.hpp"

namespace rocm_sd {

class ParallelUpload {
 public:
  // device: a GPU, which must outlive the upload.
  explicit ParallelUpload(SideCopies& device) : device_(device) {}
  // Ends the threads; what they have not begun is dropped.
  ~ParallelUpload();
  ParallelUpload(const ParallelUpload&) = delete;
  ParallelUpload& operator=(const ParallelUpload&) = delete;

  // Has one of the threads call `make` with memory for `bytes` (at most kMadeBytes), which are then copied to
  // dst.
  void add(char* dst, size_t bytes, std::function<void(char*)> make);
  // Returns once every copy is before whatever the device is given next. Throws what the first `make` or copy
  // that failed threw; what had not begun by then is dropped.
  void finish();

 private:
  struct Piece {
    char* dst;
    size_t bytes;
    std::function<void(char*)> make;
  };
  void work();
  void end_threads();

  SideCopies& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::vector<std::thread> threads_;
  bool ends_ = false;  // when there are no more pieces
  std::exception_ptr error_;
};

}  // namespace rocm_sd
