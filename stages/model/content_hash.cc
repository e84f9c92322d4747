#include "stages/model/content_hash.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "cluster/base/check.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "stages/model/weights.h"

namespace onepiece::model {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxRemembered = 4096;
constexpr unsigned kMaxReaders = 16;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    ONEPIECE_CHECK(context_ != nullptr &&
                   EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void Update(const void* data, std::size_t size) {
    ONEPIECE_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }
  std::string FinishHex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    ONEPIECE_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &length) == 1);
    std::string hex;
    for (unsigned int i = 0; i < length; ++i) {
      for (const int nibble : {digest[i] >> 4, digest[i] & 15}) hex += "0123456789abcdef"[nibble];
    }
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// Device, inode, size, and nanoseconds of the last change of content and of the inode.
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
  std::map<FileIdentity, std::string> hashes_;
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
  Sha256 sha256;
  std::vector<std::byte> buffer(kReadBytes);
  while (true) {
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path);
    if (count == 0) break;
    sha256.Update(buffer.data(), static_cast<std::size_t>(count));
  }
  std::string hash = sha256.FinishHex();
  if (::fstat(file, &status) == 0 && IdentityOf(status) == identity)
    ProcessMemory().Remember(identity, hash);
  return hash;
}

}  // namespace

std::string Sha256Hex(std::span<const std::byte> bytes) {
  Sha256 sha256;
  sha256.Update(bytes.data(), bytes.size());
  return sha256.FinishHex();
}

std::string HashOfParts(std::initializer_list<std::string_view> parts) {
  Sha256 sha256;
  for (const std::string_view part : parts) {
    const std::uint64_t size = part.size();
    sha256.Update(&size, sizeof(size));
    sha256.Update(part.data(), part.size());
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
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < readers; ++i) others.emplace_back(read);
    read();
  }
  std::string all;
  for (auto& hash : hashes) {
    ONEPIECE_RETURN_IF_ERROR(hash.status());
    all += *hash;
  }
  return Sha256Hex(std::as_bytes(std::span(all)));
}

absl::StatusOr<std::string> ComponentHash(const std::string& dir) {
  ONEPIECE_ASSIGN_OR_RETURN(const ComponentFiles files, ComponentFiles::Open(dir));
  return HashOfFiles(files.paths());
}

}  // namespace onepiece::model
