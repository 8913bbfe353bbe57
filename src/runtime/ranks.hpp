// Ranks: those who draw one image together, each on a device of its own. What they tell each other passes
// through host memory, parts of maps also from GPU to GPU; src/scaling has the ways that it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rocm_sd {

class PeerWindows;

// Thrown where another rank has begun the image anew: so must this one.
struct AttemptOver {};

// What the ranks of an image divide: the conditions of a step, the rows of every map, or both: the first half
// of the ranks has the first conditions, the second half the others, each rank its rows of them. kLayers: the
// UNet's layers, of which each rank has only its own. kTensors: the heads of its attentions and the inner
// channels of its feed-forwards; each rank has its share of them, and everything else.
enum class Division { kConditions, kRows, kBoth, kLayers, kTensors };

// One rank's view. All ranks make the same calls in the same order between two begin(). Every function throws
// DeviceError, naming the rank, where another one has failed or gives no sign of life, and CancelledError
// where it was cancelled.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int count() const = 0;
  virtual Division division() const { return Division::kConditions; }
  // Of divided rows: so many calls of the UNet are exact; later ones read of the other ranks what these had
  // in the call before. Nothing: all are exact.
  virtual std::optional<int> exact_calls() const { return std::nullopt; }
  // Whether it says so for some images, though perhaps not for this one.
  virtual bool displaces() const { return false; }

  // Begins an image, or begins it anew. What earlier attempts sent and nobody received is dropped.
  virtual void begin() = 0;
  // Does not wait for the receiver, but for room where very much is under way.
  virtual void send(int to, const void* data, size_t bytes, uint32_t channel = 0) = 0;
  // Waits for that rank's next message of the channel. Throws AttemptOver, and InternalError for a message of
  // another size.
  virtual void receive(int from, void* data, size_t bytes, uint32_t channel = 0) = 0;
  // For who waits for another rank in another way: a sign of life, and throws as receive() does.
  virtual void expect(int from) = 0;

  // The way past the host, where the devices have one; else null.
  virtual PeerWindows* windows() { return nullptr; }
  // Of a rank in the whole group.
  virtual int place(int rank) const { return rank; }
};

// Some ranks of a group among themselves, which must outlive the view: rank i of it is members[i].
class RankView final : public Ranks {
 public:
  RankView(Ranks& all, std::vector<int> members);
  int rank() const override { return own_; }
  int count() const override { return static_cast<int>(members_.size()); }
  Division division() const override { return all_.division(); }
  std::optional<int> exact_calls() const override { return all_.exact_calls(); }
  bool displaces() const override { return all_.displaces(); }
  void begin() override { all_.begin(); }
  void send(int to, const void* data, size_t bytes, uint32_t channel) override {
    all_.send(members_[static_cast<size_t>(to)], data, bytes, channel);
  }
  void receive(int from, void* data, size_t bytes, uint32_t channel) override {
    all_.receive(members_[static_cast<size_t>(from)], data, bytes, channel);
  }
  void expect(int from) override { all_.expect(members_[static_cast<size_t>(from)]); }
  PeerWindows* windows() override { return all_.windows(); }
  int place(int rank) const override { return all_.place(members_[static_cast<size_t>(rank)]); }

 private:
  Ranks& all_;
  const std::vector<int> members_;
  int own_ = 0;
};

// Sends to and receives from the same rank.
void exchange(Ranks& ranks, int with, const void* out, size_t out_bytes, void* in, size_t in_bytes);

// Rank r has written bytes [ends[r - 1], ends[r]) of `all` (the first from 0 on); every rank has all of them
// afterwards. send_part() sends the own part to all, receive_parts() waits for those of the others.
void all_gather(Ranks& ranks, void* all, std::span<const size_t> ends);
void send_part(Ranks& ranks, const void* all, std::span<const size_t> ends, uint32_t channel);
void receive_parts(Ranks& ranks, void* all, std::span<const size_t> ends, uint32_t channel);

}  // namespace rocm_sd
