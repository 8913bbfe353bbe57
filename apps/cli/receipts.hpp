// The receipt of a picture that generate draws, from its options and its result.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/receipt.hpp"

namespace rocm_sd::cli {

using OptionValue = std::pair<std::string, std::string>;  // name, value

// The paths that an option's value names and that are there: "--lora FILE:0.5", "--ip-image FILE,FILE".
std::vector<std::string> paths_in(const std::string& option, const std::string& value);

class Receipts {
 public:
  explicit Receipts(const ModelInfo& model) : model_(model) {}

  // Of the batch's picture; its files are hashed when they are first met. options: as Receipt::options, in
  // which a seed below 0 becomes the one that was drawn. Thread-safe.
  Receipt of(const std::vector<OptionValue>& options, const GenerateResult& result, int picture, int quality);

 private:
  const ReceiptFile& identified(const std::string& option, const std::string& path);

  ModelInfo model_;
  std::string driver_ = driver_versions();
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, ReceiptFile> files_;  // by option and path
};

}  // namespace rocm_sd::cli
