// A named POSIX shared memory segment: one page for the fabric's header, then the region's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

/// A mapping. All users of a segment in this process share it, so that the segment has one address
/// here and ThreadSanitizer sees that two threads use the same memory.
///
/// Threading: thread-safe.
class ShmSegment {
 public:
  /// Creates segment `name` (mode 0600) with all of its pages present.
  ///
  /// Errors: RESOURCE_EXHAUSTED (SHARED_MEMORY_FULL), INTERNAL.
  static absl::StatusOr<std::shared_ptr<ShmSegment>> Create(const std::string& name,
                                                            std::uint64_t length_bytes,
                                                            const PeerIdentity& owner);
  /// Maps a segment that a peer created; for reading alone when `remote` says so, unless this
  /// process has mapped the segment for writing already.
  ///
  /// Errors: UNAVAILABLE (PEER_GONE), INVALID_ARGUMENT (a wrong length or key, or a segment that
  /// another user owns or could open).
  static absl::StatusOr<std::shared_ptr<ShmSegment>> Attach(const RemoteRegion& remote);
  /// Removes the name of a segment of this user whose owner is dead, and returns whether it did.
  /// The owner's mapping holds a lock (flock) on the file until the kernel takes the mapping away,
  /// however the owner ends. Unlike a process id, the lock means the same in every pid namespace,
  /// and containers can share /dev/shm.
  ///
  /// Errors: INTERNAL, RESOURCE_EXHAUSTED.
  static absl::StatusOr<bool> UnlinkIfOwnerless(const std::string& name);
  /// How many segments this process remembers. Those that ended are forgotten with the next
  /// mapping.
  [[nodiscard]] static std::size_t RegisteredSegments();
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const;
  [[nodiscard]] std::uint64_t key() const;
  [[nodiscard]] PeerIdentity owner() const;
  [[nodiscard]] bool retired() const;
  void Retire();
  [[nodiscard]] std::uint32_t doorbell() const;
  void WaitDoorbell(std::uint32_t seen, base::Duration limit) const;
  void RingDoorbell() const;

 private:
  ShmSegment(std::byte* base, std::uint64_t mapped_bytes)
      : base_(base), mapped_bytes_(mapped_bytes) {}
  static absl::StatusOr<std::shared_ptr<ShmSegment>> MapFile(const RemoteRegion& remote);
  std::uint32_t* DoorbellWord() const;

  std::byte* const base_;
  const std::uint64_t mapped_bytes_;
};

}  // namespace onepiece::fabric
