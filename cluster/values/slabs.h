// Registered memory for values, taken in slabs. A local copy or a peer's one-sided writes fill a
// slab. Peers read it where it lies. It goes back when its last owner lets go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::values {

/// Where an enrolled peer finds bytes. Travels on the control plane and in the ValueIndex. A value
/// type.
struct Place {
  /// One process never uses a segment number twice, and two processes hardly ever use the same one.
  /// 0 names the index, never a slab.
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

struct SlabsOptions {
  std::string label = "values";  ///< The regions' label: letters, digits, '-', '_'.
  /// A segment holds many small slabs. A slab that is larger than a quarter of it has its own. 0:
  /// each slab has its own.
  std::uint64_t segment_bytes = std::uint64_t{64} << 20;
  /// The limit of registered memory, free room included. Take refuses to go beyond it.
  std::uint64_t limit_bytes = std::uint64_t{2} << 30;
  /// Empty segments stay registered, so that the next value costs no page faults: keep_bytes of
  /// them forever, and the others for keep_time.
  std::uint64_t keep_bytes = std::uint64_t{64} << 20;
  base::Duration keep_time = std::chrono::seconds(60);
  /// Is called for the memory of every fresh segment, before its first use. The returned object is
  /// dropped before the memory goes. Thread-safe.
  std::function<std::shared_ptr<const void>(std::span<std::byte>)> hook;
};

struct SlabsStats {
  std::uint64_t used_bytes = 0;        ///< The sizes that the callers of living slabs asked for.
  std::uint64_t taken_bytes = 0;       ///< The same with rounding.
  std::uint64_t registered_bytes = 0;  ///< The sizes of all segments.
  std::uint32_t segments = 0;
  std::uint64_t slabs = 0;
};

/// An allocator of registered memory.
///
/// Ownership: a slab keeps its segment alive and may outlive this object. `fabric` and `clock` must
/// outlive both.
///
/// Threading: thread-safe. The owner of a slab synchronises access to its bytes until it shares
/// them.
///
/// Blocking: Take may register a segment, which takes milliseconds for 64 MiB. When the machine has
/// no memory for one, Take fails at once during the next kRegisterPause. Enroll and Fence wait as
/// Region::Accept and Access::Revoke do, and hold up no other call.
///
/// Invariants: registered_bytes <= limit_bytes. Slabs never overlap and begin at multiples of 64.
/// Rounding costs at most 63 bytes or 1/16 of a slab, whichever is more.
class Slabs {
 public:
  static constexpr base::Duration kRegisterPause = std::chrono::seconds(1);

  static std::shared_ptr<Slabs> Create(fabric::Fabric& fabric, SlabsOptions options,
                                       base::Clock& clock = base::SystemClock());
  virtual ~Slabs() = default;

  struct Slab {
    std::shared_ptr<const void> owner;  ///< The slab goes back with the last copy of this.
    std::span<std::byte> bytes;         ///< As many as the caller asked for, with any content.
    Place place;
  };
  /// Errors: RESOURCE_EXHAUSTED (VALUE_MEMORY_FULL: limit_bytes is reached), INVALID_ARGUMENT
  /// (BAD_SIZE: zero bytes), and those of Fabric::Register.
  virtual absl::StatusOr<Slab> Take(std::uint64_t bytes) = 0;
  /// Sets limit_bytes. What is registered beyond a lower limit stays until it is empty.
  virtual void SetLimit(std::uint64_t bytes) = 0;
  /// The most that Take gives while nothing else is taken.
  [[nodiscard]] virtual std::uint64_t max_bytes() const = 0;
  /// Where peers find these bytes; nullopt when they are not inside one of the slabs.
  [[nodiscard]] virtual std::optional<Place> PlaceOf(std::span<const std::byte> bytes) const = 0;
  /// Lets the process of node `peer` into a segment with `rights`, which ends an earlier enrollment
  /// of that node. An enrollment ends with the segment, or with the peer's process.
  ///
  /// Errors: NOT_FOUND (SEGMENT_UNKNOWN: the segment is gone; look the value up again),
  /// RESOURCE_EXHAUSTED (TOO_MANY_PEERS), and those of Region::Accept.
  virtual absl::StatusOr<fabric::RemoteRegion> Enroll(std::uint32_t segment,
                                                      const std::string& peer,
                                                      const fabric::Offer& offer,
                                                      fabric::Rights rights) = 0;
  /// Ends the enrollments with which `peer` writes in a segment. Returns true when none of its
  /// operations changes anything there any more, and false when the backend cannot promise that yet
  /// (shm, while the peer's process lives).
  virtual bool Fence(std::uint32_t segment, const std::string& peer) = 0;
  /// Takes a segment out of use, because somebody may still write into it: no slab is taken from it
  /// any more, and it goes with its last slab. From then on it does not count in limit_bytes,
  /// though a peer that has it mapped keeps its pages.
  virtual void Discard(std::uint32_t segment) = 0;
  /// Gives back the segments that have been empty for long enough, and forgets peers that are dead.
  /// Call it from time to time.
  virtual void Trim() = 0;
  [[nodiscard]] virtual SlabsStats stats() const = 0;

 protected:
  Slabs() = default;
};

}  // namespace onepiece::values
