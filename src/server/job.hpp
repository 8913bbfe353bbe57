// A job: what is to be drawn, how far it is, what came of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rocm_sd::server {

enum class JobState { kQueued, kRunning, kCompleted, kFailed, kCancelled };
std::string_view to_string(JobState state);
inline bool is_final(JobState state) { return state > JobState::kRunning; }

struct Attachment {
  std::string option;  // "init-image"
  std::string bytes;   // of an image file
  bool joins = false;  // belongs to the value of the one before it: several files of one option
};

// Pictures that are to be enlarged: a request's files, in place of one that is drawn, or what it draws.
struct Enlargement {
  std::string upscaler;       // a filter's name, or a network's path; empty: nothing is enlarged
  double factor = 0;          // of both sides; 0: the network's own
  int width = 0, height = 0;  // in place of it: the picture covers this size
  bool crops = true;          // what is beyond the size
  bool of_drawn = false;      // of what is drawn
};

struct JobRequest {
  std::string model;                                         // a name of the catalog
  std::vector<std::pair<std::string, std::string>> options;  // of pipeline/options.hpp, checked
  std::vector<Attachment> files;
  int rounds = 1;  // batches with rising seeds
  int batch = 1, steps = 20;
  // Of the steps that the model has where the request says none. Distilled models keep their few.
  double steps_factor = 1;
  std::string format = "png";  // png, jpeg, webp
  int quality = 95;
  bool inverts_mask = false;
  bool metadata = true;  // whether files hold the parameters
  Enlargement enlargement;
  bool awaited = false;  // the client waits on its connection, and the job ends with that
  int partials = 0;      // looks at each picture, decoded, evenly over its steps, whoever looks

  size_t images() const { return static_cast<size_t>(rounds) * static_cast<size_t>(batch); }
};

struct JobImage {
  std::string bytes;  // of a file in JobRequest::format
  uint64_t seed = 0;
  int width = 0, height = 0;
  std::string parameters;  // A1111's infotext
};

// A look at the first picture of the batch at work.
struct JobPreview {
  std::string bytes;          // of a file in JobRequest::format
  int width = 0, height = 0;  // in pixels: the latents' or the picture's
  int step = 0, total = 0;
  bool partial = false;  // one of JobRequest::partials
};

struct JobProgress {
  std::string stage;        // "load", "text", "encode", "sample", "decode"
  int step = 0, total = 0;  // of the stage
  int round = 0;            // 0-based
};

struct JobError {
  int status = 500;  // as HTTP says it
  std::string type, message;
};

using JobTime = std::chrono::system_clock::time_point;

// A job as it was when somebody looked.
struct JobView {
  std::string id, client;
  JobRequest request;  // without the attachments' bytes
  JobState state = JobState::kQueued;
  size_t position = 0;  // jobs before it in the queue
  JobProgress progress;
  double seconds = 0;  // since it began to run
  JobTime created, started, finished;
  std::vector<std::shared_ptr<const JobImage>> images;
  std::shared_ptr<const JobPreview> preview;  // the last one; null: none yet
  JobError error;
  std::vector<std::string> warnings;
  std::string device;  // of the worker that runs it

  // 0..1 of all rounds; sampling counts.
  double fraction() const;
};

// The job as /v1/jobs tells it.
std::string job_json(const JobView& job);

}  // namespace rocm_sd::server
