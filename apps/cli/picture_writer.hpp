// Pictures are encoded and written by another thread while the next ones are drawn.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rocm_sd::cli {

class PictureWriter {
 public:
  PictureWriter() : thread_([this] { work(); }) {}
  ~PictureWriter();  // what was given is written, unless writing failed
  PictureWriter(const PictureWriter&) = delete;
  PictureWriter& operator=(const PictureWriter&) = delete;

  // Paths of what it wrote, in order. Runs on the writer's thread.
  using Task = std::function<std::vector<std::string>()>;
  // Waits where the writer lags behind. Throws what an earlier task threw, once.
  void add(Task task);
  // Waits for all of them. Throws what one of them threw, once; those after it were not run.
  void finish();
  // The paths that were written since the last call.
  std::vector<std::string> written();

 private:
  void work();
  void rethrow();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::vector<std::string> written_;
  std::exception_ptr error_;  // until it is thrown
  bool busy_ = false, ending_ = false, failed_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace rocm_sd::cli
