// Registered memory for values: taken in slabs, filled by a local copy or by a peer's one-sided
// writes, served from where it lies, given back when the last owner lets go.
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

/// Where a peer that was let into the segment finds bytes. A value type; travels on the control
/// plane and in the ValueIndex.
struct Place {
  /// Never used twice by one process, hardly by two; 0: the index, never a slab.
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

struct SlabsOptions {
  std::string label = "values";  ///< Of the regions: letters, digits, '-', '_'.
  /// A segment holds many small slabs; one that is larger than a quarter of it has its own.
  std::uint64_t segment_bytes = std::uint64_t{64} << 20;
  /// Registered at most, free room included; Take refuses beyond.
  std::uint64_t limit_bytes = std::uint64_t{2} << 30;
  /// Empty segments stay registered, so that the next value costs no page faults: so many bytes of
  /// them for good, others for so long.
  std::uint64_t keep_bytes = std::uint64_t{64} << 20;
  base::Duration keep_time = std::chrono::seconds(60);
};

struct SlabsStats {
  std::uint64_t used_bytes = 0;        ///< Asked for, of slabs that live.
  std::uint64_t taken_bytes = 0;       ///< With rounding.
  std::uint64_t registered_bytes = 0;  ///< Of all segments.
  std::uint32_t segments = 0;
  std::uint64_t slabs = 0;
};

/// Ownership: Slabs keep their segment alive, and may outlive this object; `fabric` and `clock`
/// outlive both.
/// Threading: Thread-safe. A slab's bytes are its owner's business until they are shared.
/// Blocking: Take may register a segment: milliseconds for 64 MiB. When the machine has no memory
/// for one, no other is asked for during kRegisterPause: Take says so at once.
/// Invariants: registered_bytes <= limit_bytes; slabs never overlap and begin at multiples of 64;
/// rounding costs at most 63 bytes or 1/16 of a slab, whichever is more.
class Slabs {
 public:
  static constexpr base::Duration kRegisterPause = std::chrono::seconds(1);

  static std::shared_ptr<Slabs> Create(fabric::Fabric& fabric, SlabsOptions options,
                                       base::Clock& clock = base::SystemClock());
  virtual ~Slabs() = default;

  struct Slab {
    std::shared_ptr<const void> owner;  ///< The slab goes back when the last copy goes.
    std::span<std::byte> bytes;         ///< As many as asked for, any content.
    Place place;
  };
  /// Errors: RESOURCE_EXHAUSTED (VALUE_MEMORY_FULL: limit_bytes; those of Fabric::Register),
  /// INVALID_ARGUMENT (zero bytes).
  virtual absl::StatusOr<Slab> Take(std::uint64_t bytes) = 0;
  /// Where peers find these bytes; nullopt when they are not inside a slab of ours.
  [[nodiscard]] virtual std::optional<Place> PlaceOf(std::span<const std::byte> bytes) const = 0;
  /// Lets the process of node `peer` into a segment; a former enrollment of that node ends. Gone
  /// again with the segment, or with the peer's process. Errors: NOT_FOUND (SEGMENT_UNKNOWN: it is
  /// gone; look the value up again), those of Region::Accept.
  virtual absl::StatusOr<fabric::RemoteRegion> Enroll(std::uint32_t segment,
                                                      const std::string& peer,
                                                      const fabric::Offer& offer) = 0;
  /// Ends the enrollments of `peer` to a segment. True: nothing of it takes effect there any more.
  /// False: the backend cannot promise that yet (shm, while the peer's process lives).
  virtual bool Fence(std::uint32_t segment, const std::string& peer) = 0;
  /// Gives back the segments that have been empty for long enough. Now and then.
  virtual void Trim() = 0;
  [[nodiscard]] virtual SlabsStats stats() const = 0;

 protected:
  Slabs() = default;
};

}  // namespace onepiece::values
