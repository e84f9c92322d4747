#include "cluster/fabric/shm/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>

#include "absl/base/thread_annotations.h"
#include "cluster/base/file_descriptor.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/fabric/process.h"

namespace onepiece::fabric {
namespace {

constexpr std::uint64_t kHeaderBytes = 4096;
constexpr std::uint64_t kMagic = 0x314745534550'4e4f;  // "ONPESEG1"
constexpr std::uint64_t kMagicAt = 0;
constexpr std::uint64_t kKeyAt = 8;
constexpr std::uint64_t kLengthAt = 16;
constexpr std::uint64_t kOwnerPidAt = 24;
constexpr std::uint64_t kOwnerStartAt = 32;
constexpr std::uint64_t kRetiredAt = 40;
constexpr std::uint64_t kDoorbellAt = 64;  // 32 bits, as futexes are; a line of its own.

// Follows the name of a segment that is mapped for reading alone. No name has a second slash.
constexpr char kReaderMark[] = "/reader";

struct Registry {
  base::Mutex mutex;
  std::map<std::string, std::weak_ptr<ShmSegment>> segments ABSL_GUARDED_BY(mutex);

  std::shared_ptr<ShmSegment> Find(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto at = segments.find(name);
    return at == segments.end() ? nullptr : at->second.lock();
  }
  void ForgetEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::erase_if(segments, [](const auto& entry) { return entry.second.expired(); });
  }
};
Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

absl::Status SystemError(const char* what, const std::string& name, int error) {
  const bool full = error == ENOSPC || error == ENOMEM;
  return base::MakeError(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
                         full ? "SHARED_MEMORY_FULL" : "SHARED_MEMORY_FAILED",
                         std::string(what) + " " + name + ": " + std::strerror(error),
                         {{"segment", name}});
}

// Allocates the pages now. Otherwise the first store into a full file system would raise SIGBUS.
int AllocatePages(int fd, std::uint64_t bytes) {
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

// MAP_POPULATE keeps page faults out of the first lap of every ring.
std::byte* Map(int fd, std::uint64_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

// The owner has filled the pages, so populating them for reading maps many at once, and they can be
// written too.
std::byte* MapFilled(int fd, std::uint64_t bytes, int protection) {
  void* base = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  // A kernel before 5.14 cannot do that. Then each page is mapped when it is first used.
  (void)madvise(base, bytes, MADV_POPULATE_READ);
  return static_cast<std::byte*>(base);
}

// Creates the file and locks it (UnlinkIfOwnerless). Returns its descriptor, or -1 and errno.
int CreateLocked(const std::string& name) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    struct stat info {};
    const bool locked = flock(fd, LOCK_EX) == 0 && fstat(fd, &info) == 0;
    const int error = errno;
    if (locked && info.st_nlink > 0) return fd;
    close(fd);
    if (!locked) {
      shm_unlink(name.c_str());
      errno = error;
      return -1;
    }
    // Somebody found the file before it was locked, took it for a stale one and removed it.
  }
  errno = EAGAIN;
  return -1;
}

// A segment of another user may change or shrink under its readers' feet, and what others may open
// holds no cluster's data.
bool IsPrivate(const struct stat& info) {
  return S_ISREG(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

absl::Status WrongRegion(const std::string& name, const char* what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_REGION",
                         "segment " + name + ": " + what);
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShmSegment>> ShmSegment::Create(const std::string& name,
                                                               std::uint64_t length_bytes,
                                                               const PeerIdentity& owner) {
  const std::uint64_t mapped = kHeaderBytes + length_bytes;
  const base::FileDescriptor file(CreateLocked(name));
  if (file.get() < 0) return SystemError("cannot create", name, errno);
  int error = AllocatePages(file.get(), mapped);
  std::byte* base = nullptr;
  if (error == 0) {
    base = Map(file.get(), mapped);
    if (base == nullptr) error = errno;
  }
  if (error != 0) {
    shm_unlink(name.c_str());
    return SystemError("no memory for", name, error);
  }
  std::shared_ptr<ShmSegment> segment(new ShmSegment(base, mapped));
  StoreWord(base + kKeyAt, base::RandomU64());
  StoreWord(base + kLengthAt, length_bytes);
  StoreWord(base + kOwnerPidAt, static_cast<std::uint64_t>(owner.pid));
  StoreWord(base + kOwnerStartAt, owner.start_time);
  // The magic goes last, so a header that has it is complete.
  StoreWord(base + kMagicAt, kMagic);
  Registry& registry = TheRegistry();
  const base::MutexLock lock(registry.mutex);
  registry.ForgetEnded();
  registry.segments[name] = segment;
  return segment;
}

absl::StatusOr<std::shared_ptr<ShmSegment>> ShmSegment::Attach(const RemoteRegion& remote) {
  const std::string& name = remote.address;
  const bool reads = remote.rights == Rights::kReadOnly;
  Registry& registry = TheRegistry();
  // The lock is held until the mapping is registered. Otherwise two threads that attach at once
  // would map the segment twice.
  const base::MutexLock lock(registry.mutex);
  std::shared_ptr<ShmSegment> segment = registry.Find(name);
  if (segment == nullptr && reads) segment = registry.Find(name + kReaderMark);
  if (segment == nullptr) {
    ONEPIECE_ASSIGN_OR_RETURN(segment, MapFile(remote));
    registry.segments[reads ? name + kReaderMark : name] = segment;
    // A process that only attaches would otherwise remember every segment that it ever mapped.
    registry.ForgetEnded();
  }
  // The checks also hold for a segment that this process has mapped already: the name alone lets
  // nobody in.
  const std::byte* header = segment->base_;
  if (LoadWord(header + kMagicAt) != kMagic) return WrongRegion(name, "is not one of ours");
  if (LoadWord(header + kLengthAt) != remote.length_bytes ||
      segment->mapped_bytes_ != kHeaderBytes + remote.length_bytes) {
    return WrongRegion(name, "has another length");
  }
  if (segment->key() != remote.key) return WrongRegion(name, "has another key");
  return segment;
}

absl::StatusOr<std::shared_ptr<ShmSegment>> ShmSegment::MapFile(const RemoteRegion& remote) {
  const std::string& name = remote.address;
  const bool reads = remote.rights == Rights::kReadOnly;
  const base::FileDescriptor file(
      shm_open(name.c_str(), (reads ? O_RDONLY : O_RDWR) | O_CLOEXEC, 0));
  if (file.get() < 0) {
    return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE",
                           "no segment " + name + ": " + std::strerror(errno));
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return SystemError("cannot look at", name, errno);
  if (!IsPrivate(info)) return WrongRegion(name, "is another user's, or others may open it");
  // A file that is too short could be mapped too, and an access behind its end would raise SIGBUS.
  const std::uint64_t mapped = kHeaderBytes + remote.length_bytes;
  if (static_cast<std::uint64_t>(info.st_size) != mapped) {
    return WrongRegion(name, "has another length");
  }
  std::byte* base = MapFilled(file.get(), mapped, reads ? PROT_READ : PROT_READ | PROT_WRITE);
  if (base == nullptr) return SystemError("cannot map", name, errno);
  return std::shared_ptr<ShmSegment>(new ShmSegment(base, mapped));
}

absl::StatusOr<bool> ShmSegment::UnlinkIfOwnerless(const std::string& name) {
  const base::FileDescriptor file(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  // Its owner or another cleaner has removed it, or it is another user's.
  if (file.get() < 0 && (errno == ENOENT || errno == EACCES)) return false;
  if (file.get() < 0) return SystemError("cannot open", name, errno);
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !IsPrivate(info)) return false;
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    return SystemError("cannot lock", name, errno);
  }
  // With the lock held, so that its creator sees that it has gone (CreateLocked).
  return shm_unlink(name.c_str()) == 0;
}

std::size_t ShmSegment::RegisteredSegments() {
  Registry& registry = TheRegistry();
  const base::MutexLock lock(registry.mutex);
  return registry.segments.size();
}

ShmSegment::~ShmSegment() { munmap(base_, mapped_bytes_); }

std::span<std::byte> ShmSegment::bytes() const {
  return {base_ + kHeaderBytes, static_cast<std::size_t>(mapped_bytes_ - kHeaderBytes)};
}

std::uint64_t ShmSegment::key() const { return LoadWord(base_ + kKeyAt); }

PeerIdentity ShmSegment::owner() const {
  // Accept refuses peers of other hosts and process-id namespaces, so the owner's pid means the
  // same process here.
  return {.host = SelfIdentity().host,
          .pid = static_cast<std::int32_t>(LoadWord(base_ + kOwnerPidAt)),
          .start_time = LoadWord(base_ + kOwnerStartAt)};
}

bool ShmSegment::retired() const { return LoadWord(base_ + kRetiredAt) != 0; }

void ShmSegment::Retire() { StoreWord(base_ + kRetiredAt, 1); }

std::uint32_t* ShmSegment::DoorbellWord() const {
  return reinterpret_cast<std::uint32_t*>(base_ + kDoorbellAt);
}

std::uint32_t ShmSegment::doorbell() const {
  return std::atomic_ref<std::uint32_t>(*DoorbellWord()).load();
}

void ShmSegment::WaitDoorbell(std::uint32_t seen, base::Duration limit) const {
  if (limit <= base::Duration::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec relative{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  // The kernel compares the word again under its own lock, so this call does not sleep through a
  // ring that came after the caller's last look.
  syscall(SYS_futex, DoorbellWord(), FUTEX_WAIT, seen, &relative, nullptr, 0);
}

void ShmSegment::RingDoorbell() const {
  std::atomic_ref<std::uint32_t>(*DoorbellWord()).fetch_add(1);
  // No futex call here has FUTEX_PRIVATE_FLAG, because the sleeper and the ringer may be different
  // processes.
  syscall(SYS_futex, DoorbellWord(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace onepiece::fabric
