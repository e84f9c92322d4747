// A world over the project's own fabric: N(N−1) one-sided channels that are opened once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "stages/collectives/rendezvous.h"
#include "stages/collectives/world.h"

namespace onepiece::collectives {

struct Mesh;

/// All workers of a world must have the same numbers, but for the index.
struct FabricWorldOptions {
  std::uint32_t index = 0;    ///< This worker.
  std::uint32_t workers = 0;  ///< At most kMaxWorkers.
  /// A message is cut into chunks of this size: a multiple of 64, at most 16 MiB.
  std::uint64_t slot_bytes = 64 * 1024;
  /// So many chunks may be on their way between two workers: 2 to 64. Each worker holds
  /// workers × slots × slot_bytes of the fabric's memory.
  std::uint64_t slots = 4;
};

/// The fabric's world. Its groups exchange no message when they are made.
///
/// Ownership: borrows the fabric.
class FabricWorld final : public World {
 public:
  /// Opens this worker's end, in two rounds of the rendezvous; all workers do so at once. Workers
  /// may be processes, or threads of one process.
  ///
  /// Blocking: at most until `deadline`.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_WORLD: the options; WORLD_DIFFERS: another worker's options or
  /// version), and those of the rendezvous and of the fabric.
  static absl::StatusOr<std::unique_ptr<FabricWorld>> Open(fabric::Fabric& fabric,
                                                           Rendezvous& rendezvous,
                                                           const FabricWorldOptions& options,
                                                           base::MonotonicTime deadline);
  ~FabricWorld() override;

  [[nodiscard]] std::uint32_t index() const override;
  [[nodiscard]] std::uint32_t workers() const override;
  absl::StatusOr<std::unique_ptr<sdk::Group>> MakeGroup(
      const sdk::GroupDescriptor& descriptor) override;

  /// Takes in workers that were started again, also one whose links are broken. All other workers
  /// call this at once, with the same workers, while each of these calls Open, with seats at the
  /// same rendezvous. Groups made before do not go on with them.
  ///
  /// Blocking: at most until `deadline`.
  ///
  /// Errors: as Open, and FAILED_PRECONDITION (STILL_ALIVE: the former process of a worker lives,
  /// and this fabric cannot keep it from writing; end it first). After an error these workers are
  /// lost until the next call.
  absl::Status Reconnect(std::span<const std::uint32_t> workers, Rendezvous& rendezvous,
                         base::MonotonicTime deadline);

 private:
  explicit FabricWorld(std::unique_ptr<Mesh> mesh);
  absl::Status Meet(std::span<const std::uint32_t> peers, Rendezvous& rendezvous,
                    base::MonotonicTime deadline);

  const std::unique_ptr<Mesh> mesh_;
};

}  // namespace onepiece::collectives
