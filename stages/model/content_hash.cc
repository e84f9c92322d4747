#include "stages/model/content_hash.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "stages/model/weights.h"

namespace onepiece::model {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxRemembered = 4096;
constexpr unsigned kMaxReaders = 16;

// Device, inode, size, and nanoseconds of the last change of content and of the inode.
// A copy tool can set the time of the content back, but not that of the inode.
using FileIdentity = std::tuple<dev_t, ino_t, off_t, std::int64_t, std::int64_t>;

FileIdentity IdentityOf(const struct stat& status) {
  const auto ns = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {status.st_dev, status.st_ino, status.st_size, ns(status.st_mtim), ns(status.st_ctim)};
}

// The hashes of files that this process has read. May be used from any thread.
class Memory {
 public:
  std::optional<std::string> Find(const FileIdentity& identity) {
    const base::MutexLock lock(mutex_);
    const auto found = hashes_.find(identity);
    if (found == hashes_.end()) return std::nullopt;
    return found->second;
  }
  void Remember(const FileIdentity& identity, const std::string& hash) {
    const base::MutexLock lock(mutex_);
    if (hashes_.size() >= kMaxRemembered) hashes_.clear();
    hashes_.emplace(identity, hash);
  }

 private:
  base::Mutex mutex_;
  std::map<FileIdentity, std::string> hashes_ ABSL_GUARDED_BY(mutex_);
};

Memory& ProcessMemory() {
  static auto* const memory = new Memory;  // Never destroyed: threads may outlive main.
  return *memory;
}

absl::Status CannotRead(const std::string& path) {
  return base::MakeError(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                         path + ": " + std::strerror(errno), {{"file", path}});
}

absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return CannotRead(path);
  const absl::Cleanup close = [file] { ::close(file); };
  struct stat status {};
  if (::fstat(file, &status) != 0) return CannotRead(path);
  const FileIdentity identity = IdentityOf(status);
  if (auto known = ProcessMemory().Find(identity)) return *std::move(known);
  base::Sha256 sha256;
  std::vector<std::byte> buffer(kReadBytes);
  while (true) {
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path);
    if (count == 0) break;
    sha256.Update(std::as_bytes(std::span(buffer).first(static_cast<std::size_t>(count))));
  }
  std::string hash = sha256.FinishHex();
  // A hash of a file that was written meanwhile may be of neither content, so it is not remembered.
  if (::fstat(file, &status) == 0 && IdentityOf(status) == identity)
    ProcessMemory().Remember(identity, hash);
  return hash;
}

}  // namespace

std::string HashOfParts(std::initializer_list<std::string_view> parts) {
  base::Sha256 sha256;
  for (const std::string_view part : parts) {
    const std::uint64_t size = part.size();
    sha256.Update(std::as_bytes(std::span(&size, 1)));
    sha256.Update(part);
  }
  return sha256.FinishHex();
}

absl::StatusOr<std::string> HashOfFiles(const std::vector<std::string>& paths) {
  std::vector<absl::StatusOr<std::string>> hashes(paths.size());
  std::atomic<std::size_t> next = 0;
  const auto read = [&] {
    for (std::size_t i = next++; i < paths.size(); i = next++) hashes[i] = HashOfFile(paths[i]);
  };
  {
    const std::size_t readers = std::min<std::size_t>(
        {paths.size(), std::max(1U, std::thread::hardware_concurrency()), kMaxReaders});
    // They end with this block, before the hashes are read.
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < readers; ++i) others.emplace_back(read);
    read();
  }
  std::string all;
  for (auto& hash : hashes) {
    ONEPIECE_RETURN_IF_ERROR(hash.status());
    all += *hash;
  }
  return base::Sha256Hex(std::as_bytes(std::span(all)));
}

absl::StatusOr<std::string> ComponentHash(const std::string& dir) {
  ONEPIECE_ASSIGN_OR_RETURN(const ComponentFiles files, ComponentFiles::Open(dir));
  return HashOfFiles(files.paths());
}

}  // namespace onepiece::model
