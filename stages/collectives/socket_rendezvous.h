// The rendezvous of worker processes on one host: a Unix socket of their leader.
//
// Offers hold secrets, so the socket is in a folder that only this user can enter, and both ends
// check that the other one is a process of this user.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "stages/collectives/rendezvous.h"

namespace onepiece::collectives {

/// The leader's part: collects the workers' texts and hands them out, in a thread of its own, until
/// it is destroyed. The leader may be a worker too, and then takes a seat as all others do. A seat
/// is free again once its worker has left or died, so a worker that was started again can take it.
///
/// Threading: thread-safe.
class RendezvousHub {
 public:
  /// Listens on a new socket `path`, whose folder must belong to this user and be closed to others
  /// (0700). A socket that is left there from before is replaced.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_WORLD, INSECURE_FOLDER, BAD_PATH: longer than 100 bytes),
  /// INTERNAL (SOCKET_FAILED).
  static absl::StatusOr<std::unique_ptr<RendezvousHub>> Listen(const std::string& path,
                                                               std::uint32_t workers);
  /// Ends all seats and removes the socket.
  virtual ~RendezvousHub() = default;
};

/// Takes the seat of worker `index`.
///
/// Blocking: not for long; Exchange waits.
///
/// Errors: UNAVAILABLE (RENDEZVOUS_GONE: nobody listens), INVALID_ARGUMENT (BAD_WORLD, BAD_PATH),
/// PERMISSION_DENIED (OTHER_USER), INTERNAL (SOCKET_FAILED). Exchange answers a seat that is taken,
/// or of a world of another size, with INVALID_ARGUMENT (BAD_SEAT).
absl::StatusOr<std::unique_ptr<Rendezvous>> JoinRendezvous(
    const std::string& path, std::uint32_t index, std::uint32_t workers,
    base::Clock& clock = base::SystemClock());

}  // namespace onepiece::collectives
