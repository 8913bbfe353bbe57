#include "scaling/launched.hpp"

#include <dlfcn.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/devices.hpp"
#include "runtime/gpu.hpp"
#include "runtime/kernel_archive.hpp"
#include "scaling/claims.hpp"
#include "scaling/file_hash.hpp"
#include "scaling/link_test.hpp"
#include "scaling/mpi_hub.hpp"
#include "scaling/patience.hpp"
#include "scaling/shared_hub.hpp"

namespace rocm_sd {
namespace {

std::string kind_there() {
  for (const DeviceListing& device : list_devices())
    if (device.usable && (device.name.starts_with("hip:") || device.name.starts_with("cuda:")))
      return device.name.substr(0, device.name.find(':'));
  return "cpu";
}

// The file that holds this code: the program, or the library.
std::string program_file() {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<void*>(&program_file), &info) && info.dli_fname ? info.dli_fname : "";
}

std::string kernels_of(Device& device) {
  if (device.kind() == DeviceKind::kHost) return "none";
  const auto archive = find_kernel_archive(device_architecture(device));
  return archive ? hash_of_file(archive->string()) : "none";
}

}  // namespace

Launched::Launched(const LoadOptions& options) {
  const auto found = find_launch([](const char* name) { return std::getenv(name); });
  require<UsageError>(found.has_value(), "devices: ", printable(options.devices),
                      ": no launch: start it with torchrun --no-python, mpirun or srun, or set RANK, "
                      "WORLD_SIZE and ROCM_SD_JOB for each process");
  launch_ = *found;
  const bool mpi = takes_mpi(launch_, [](const char* name) { return std::getenv(name); });
  device_.name = device_of_rank(options.devices, launch_, options.devices == "ranks" ? kind_there() : "");
  device_.device = &device_named(device_.name);
  const DeviceKind kind = device_.device->kind();
  if (kind == DeviceKind::kHost) device_.threads = std::max(1, omp_get_max_threads() / launch_.local_count);
  patience_ = patience_of(std::span(&kind, 1));
  if (mpi)
    hub_ = std::make_shared<MpiHub>(launch_.rank, launch_.count, device_.name, patience_);
  else
    hub_ = std::make_shared<SharedHub>(board_path(launch_.job), launch_.rank, launch_.count, device_.name,
                                       patience_);
}

// Lines "name: value".
std::string Launched::facts(const LoadOptions& options, const Group& group) const {
  const ModelInfo& info = group.first().info();
  std::ostringstream out;
  out << "program: " << version() << " " << hash_of_file(program_file()) << "\n"
      << "split: " << options.split << "\n"
      << "weights: " << info.parameters << " parameters, " << hash_of_weights(options) << "\n";
  if (group.ranks() > 1)
    out << "architecture: " << device_architecture(*device_.device) << "\n"
        << "type: " << info.dtype << "\n"
        << "kernels: " << kernels_of(*device_.device) << "\n";
  return out.str();
}

void Launched::compare(const std::string& own) const {
  HubRanks link(*hub_, launch_.rank);
  constexpr size_t kBytes = 1024;
  std::vector<char> all(kBytes * static_cast<size_t>(launch_.count), '\0');
  std::vector<size_t> ends;
  for (int i = 1; i <= launch_.count; ++i) ends.push_back(kBytes * static_cast<size_t>(i));
  own.copy(all.data() + kBytes * static_cast<size_t>(launch_.rank), kBytes - 1);
  link.begin();
  all_gather(link, all.data(), ends);
  std::istringstream first(all.data());
  std::vector<std::string> wanted;
  for (std::string line; std::getline(first, line);) wanted.push_back(line);
  for (int rank = 1; rank < launch_.count; ++rank) {
    std::istringstream told(all.data() + kBytes * static_cast<size_t>(rank));
    for (const std::string& want : wanted) {
      std::string got;
      std::getline(told, got);
      require<DeviceError>(got == want, "ranks: rank ", rank, " (", hub_->name(rank), ") and rank 0 (",
                           hub_->name(0), ") differ: \"", printable(got), "\" and \"", printable(want),
                           "\"; all ranks need the same program, model and options",
                           want.starts_with("architecture") ? ", and one image devices of one architecture "
                                                              "(--split images takes any)"
                                                            : "");
    }
  }
  const LinkTest test = test_links(link);
  if (launch_.rank == 0)
    log().info("ranks: {} processes by {}, {}: {:.1f} us a message, {:.2f} GB/s", launch_.count,
               launch_.launcher, hub_->way(), test.seconds * 1e6, test.bytes_per_second / 1e9);
}

std::unique_ptr<Group> Launched::load(const LoadOptions& options, const Callbacks& callbacks) {
  Callbacks watched = callbacks;
  watched.cancelled = [this, asked = callbacks.cancelled] {
    hub_->beat(launch_.rank);
    return hub_->failed() || (asked && asked());
  };
  hub_->begin_call(launch_.rank);
  auto group = std::make_unique<Group>(options, device_, hub_, launch_.rank, patience_, watched);
  compare(facts(options, *group));
  hub_->end_call(launch_.rank);
  return group;
}

void Launched::give_up(int rank, const std::string& reason) {
  if (hub_->expelled(rank)) return;
  hub_->expel(rank);
  log().warn("rank {} ({}) is lost: {}; the others draw its images", rank, hub_->name(rank), reason);
}

void Launched::check_expelled() const {
  require<DeviceError>(!hub_->expelled(launch_.rank), "rank ", launch_.rank, " (", device_.name,
                       ") was silent for so long that the others have taken its images");
}

void Launched::draw_one(Claims& claims, size_t index, const GenerateRequest& request,
                        const MultiPipeline::ResultTaker& take,
                        const std::function<GenerateResult(const GenerateRequest&)>& draw) {
  hub_->begin_call(launch_.rank);
  GenerateResult result = draw(request);
  hub_->end_call(launch_.rank);
  check_expelled();
  if (!claims.begin_handing_over(index)) return;
  take(index, std::move(result));
  claims.finish(index);
}

void Launched::draw_each(const MultiPipeline::RequestAt& request, const MultiPipeline::ResultTaker& take,
                         const std::function<GenerateResult(const GenerateRequest&)>& draw) {
  const std::unique_ptr<Claims> claimed = hub_->claims(launch_.rank);
  Claims& claims = *claimed;
  size_t count = 0;
  for (std::optional<GenerateRequest> next; (next = request(count)); ++count) {
    require<UsageError>(count < kMaxClaims, "ranks: at most ", kMaxClaims, " requests");
    if (claims.take(count)) draw_one(claims, count, *next, take, draw);
  }
  // What others have is waited for, in case that they are lost.
  for (bool all_done = false; !all_done;) {
    all_done = true;
    for (size_t i = 0; i < count; ++i) {
      if (claims.done(i)) continue;
      all_done = false;
      const int owner = claims.owner(i);
      if (owner < 0 || owner == launch_.rank) continue;
      const std::string reason = hub_->expelled(owner) ? "given up" : hub_->why_lost(owner);
      if (reason.empty()) continue;
      // It may have finished the request and ended in between.
      if (!claims.take_over(i, owner)) continue;
      give_up(owner, reason);
      draw_one(claims, i, *request(i), take, draw);
    }
    check_expelled();
    if (!all_done) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace rocm_sd
