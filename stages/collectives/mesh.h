// What a world of the fabric and its groups share: one worker's region, doorbell and links.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cluster/fabric/fabric.h"
#include "stages/collectives/link.h"
#include "stages/collectives/slots.h"

namespace onepiece::collectives {

/// Threading: one thread at a time.
struct Mesh {
  fabric::Fabric& fabric;
  AreaLayout layout;
  std::uint32_t index = 0;
  /// How many threads of this host run at once.
  unsigned processors = 1;
  std::shared_ptr<fabric::Doorbell> doorbell;
  // The links' accesses must not outlive the region.
  std::unique_ptr<fabric::Region> region;
  /// By worker; null for this one.
  std::vector<std::unique_ptr<Link>> links;
  /// The greatest epoch of this worker's groups.
  std::uint64_t epoch = 0;
  /// Grows when links are made again. Groups from before must not use them.
  std::uint64_t generation = 0;
};

}  // namespace onepiece::collectives
