// rocm-sd generate --compare-exact: every batch is drawn twice, first without its savings, and the pictures
// and their times are compared.
#pragma once

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd::cli {

class ExactComparison {
 public:
  // The same request without savings. Throws UsageError where it has none.
  static GenerateRequest exact(GenerateRequest request);

  // Results in the order of drawing: the exact ones wait, the others are compared with them, and a line for
  // each picture printed. True: it was an exact one.
  bool take(const GenerateResult& result);

 private:
  std::vector<Image> pictures_;
  double seconds_ = 0;
};

}  // namespace rocm_sd::cli
