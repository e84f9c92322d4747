#include "cluster/fabric/verbs/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"

namespace onepiece::fabric::verbs {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kHugePageBytes = 2 * 1024 * 1024;

std::uint64_t RoundUp(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

void* MapPages(std::uint64_t bytes, int flags) {
  void* start =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return start == MAP_FAILED ? nullptr : start;
}

// Huge pages exist only where the administrator has reserved them. Elsewhere ordinary pages do,
// which the kernel may still merge.
void* MapBest(std::uint64_t length_bytes, std::uint64_t& mapped) {
  if (length_bytes >= kHugePageBytes) {
    mapped = RoundUp(length_bytes, kHugePageBytes);
    if (void* start = MapPages(mapped, MAP_HUGETLB)) return start;
  }
  mapped = RoundUp(length_bytes, kPageBytes);
  void* start = MapPages(mapped, 0);
  if (start != nullptr && mapped >= kHugePageBytes) madvise(start, mapped, MADV_HUGEPAGE);
  return start;
}

std::string MemlockLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur) + " bytes";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pages>> Pages::Allocate(std::uint64_t length_bytes) {
  std::uint64_t mapped = 0;
  void* start = MapBest(length_bytes, mapped);
  const int error = start == nullptr ? errno : 0;
  if (start == nullptr) {
    return base::MakeError(
        absl::StatusCode::kResourceExhausted, "NO_MEMORY",
        "no memory for " + std::to_string(length_bytes) + " bytes: " + std::strerror(error));
  }
  std::unique_ptr<Pages> pages(
      new Pages({static_cast<std::byte*>(start), static_cast<std::size_t>(length_bytes)}, mapped));
  // Makes the pages present before the first write, and gives an error instead of a signal when
  // memory runs out.
  if (madvise(start, mapped, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINVAL) {
      return base::MakeError(
          absl::StatusCode::kResourceExhausted, "NO_MEMORY",
          "no pages for " + std::to_string(length_bytes) + " bytes: " + std::strerror(errno));
    }
    std::memset(start, 0, mapped);  // Kernels before 5.14.
  }
  // After a fork a write could give this process a copy of a page, and the device would go on with
  // the old page.
  madvise(start, mapped, MADV_DONTFORK);
  return pages;
}

Pages::~Pages() { munmap(bytes_.data(), mapped_bytes_); }

absl::StatusOr<Handle<ibv_mr>> RegisterMemory(ibv_pd* domain, std::span<const std::byte> bytes,
                                              int access) {
  void* start = const_cast<std::byte*>(bytes.data());
  Handle<ibv_mr> registration(ibv_reg_mr(domain, start, bytes.size(), access));
  if (registration != nullptr) return registration;
  const int error = errno;
  const std::string what = "cannot register " + std::to_string(bytes.size()) + " bytes";
  // The kernel also says ENOMEM when the limit of locked memory is reached.
  if (error != ENOMEM && error != EAGAIN && error != EPERM) return VerbsError(what, error);
  return base::MakeError(
      absl::StatusCode::kResourceExhausted, "MEMLOCK_LIMIT",
      what + ": " + std::strerror(error) + "; RLIMIT_MEMLOCK is " + MemlockLimit() +
          ": raise it (ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit)");
}

absl::StatusOr<Staging> StagingPool::Take() {
  {
    const base::MutexLock lock(mutex_);
    if (!idle_.empty()) {
      Staging staging = std::move(idle_.back());
      idle_.pop_back();
      return staging;
    }
  }
  Staging staging;
  ONEPIECE_ASSIGN_OR_RETURN(staging.pages, Pages::Allocate(Staging::kBytes));
  ONEPIECE_ASSIGN_OR_RETURN(
      staging.registration,
      RegisterMemory(device_->domain(), staging.pages->bytes(), IBV_ACCESS_LOCAL_WRITE));
  return staging;
}

void StagingPool::GiveBack(Staging staging) {
  const base::MutexLock lock(mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(staging));
}

}  // namespace onepiece::fabric::verbs
