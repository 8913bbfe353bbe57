#include "models/exchange_record.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rocm_sd {
namespace {

thread_local ExchangeRecord* innermost = nullptr;

}  // namespace

uint64_t Exchange::bytes() const { return std::accumulate(sent.begin(), sent.end(), uint64_t{0}); }
int Exchange::messages() const {
  return static_cast<int>(std::ranges::count_if(sent, [](uint64_t bytes) { return bytes > 0; }));
}

ExchangeRecord::ExchangeRecord() : outer_(innermost) { innermost = this; }
ExchangeRecord::~ExchangeRecord() { innermost = outer_; }

void ExchangeRecord::note(Exchange exchange) {
  if (innermost) innermost->exchanges_.push_back(std::move(exchange));
}

}  // namespace rocm_sd
