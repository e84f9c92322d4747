#include "stages/worker/shared_message.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::worker {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

absl::Status NoMemory(const char* what) {
  return base::MakeError(absl::StatusCode::kResourceExhausted, "NO_MEMORY",
                         std::string("memory for a worker: ") + what + ": " + std::strerror(errno));
}

absl::Status Malformed(const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_MESSAGE", what);
}

absl::Status WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return NoMemory("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedMessage> Share(const message::Message& message, base::MonotonicTime now) {
  ONEPIECE_ASSIGN_OR_RETURN(const message::Encoded encoded, message::Encode(message, now));
  SharedMessage shared{
      .memory = FileDescriptor(::memfd_create("onepiece-work", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
      .bytes = encoded.total_bytes};
  const int fd = shared.memory.get();
  if (fd < 0) return NoMemory("memfd_create");
  for (const message::Piece& piece : encoded.pieces)
    ONEPIECE_RETURN_IF_ERROR(WriteAll(fd, piece.bytes));
  if (::fcntl(fd, F_ADD_SEALS, kSeals) != 0) return NoMemory("seal");
  return shared;
}

absl::StatusOr<message::Message> Map(const FileDescriptor& memory, std::uint64_t bytes,
                                     base::MonotonicTime now) {
  struct stat about {};
  // Memory that somebody could shrink would end this process with SIGBUS.
  if (!memory.valid() || ::fcntl(memory.get(), F_GET_SEALS) != kSeals ||
      ::fstat(memory.get(), &about) != 0 || bytes == 0 ||
      static_cast<std::uint64_t>(about.st_size) < bytes) {
    return Malformed("a worker's message is not in sealed memory of its size");
  }
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return NoMemory("mmap");
  const std::shared_ptr<const void> owner(
      mapped, [bytes](const void* at) { ::munmap(const_cast<void*>(at), bytes); });
  const std::span all(static_cast<const std::byte*>(mapped), bytes);
  return message::Decode(message::Buffer(owner, all), message::Checksum::kVerified, now);
}

}  // namespace onepiece::worker
