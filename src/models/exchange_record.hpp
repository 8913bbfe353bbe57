// What ranks pass to each other while they compute on parts of maps, for those who plan it: how many bytes,
// to whom, and how many pieces a device copies for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rocm_sd {

// One exchange of a forward, as the rank that plans it takes part in it.
struct Exchange {
  std::vector<uint64_t> sent;  // bytes of the message to each rank of the split; 0: none
  // Between a device's memory and the host's: bytes, and the calls that copy them.
  uint64_t to_host = 0, to_device = 0;
  int copies_to_host = 0, copies_to_device = 0;
  double beside_flops = 0;  // work that the rank may do while it is under way; by way of the host it waits

  uint64_t bytes() const;  // sent, to all ranks
  int messages() const;
};

// The exchanges of the forwards that this thread plans or runs eagerly while this lives, in order.
class ExchangeRecord {
 public:
  ExchangeRecord();
  ~ExchangeRecord();
  ExchangeRecord(const ExchangeRecord&) = delete;
  ExchangeRecord& operator=(const ExchangeRecord&) = delete;
  const std::vector<Exchange>& exchanges() const { return exchanges_; }

  // Adds to the innermost record; without effect where there is none.
  static void note(Exchange exchange);

 private:
  std::vector<Exchange> exchanges_;
  ExchangeRecord* outer_;
};

}  // namespace rocm_sd
