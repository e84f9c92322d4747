// What a producer and a consumer tell each other over the control plane before the first message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/ids.h"
#include "cluster/ring/layout.h"

namespace onepiece::ring {

/// A producer that asks to be enrolled.
struct ProducerIdentity {
  ProducerId producer_id;
  Incarnation incarnation;
  fabric::Offer offer;  ///< The offer of the dialer that the producer connects with.
  std::string name;     ///< The node's name, for people.
};

/// The segment that an enrolled producer may write into. Travels in the answer to its call on the
/// control plane.
struct ProducerGrant {
  fabric::RemoteRegion region;
  Shape shape = Shape::kShared;
  std::uint16_t owner = 0;
  Generation generation;
  std::uint64_t capacity_bytes = 0;
  std::uint32_t slots = 0;

  [[nodiscard]] std::string Serialize() const;
  /// Checks the form, the geometry, and that the geometry fits the region's length.
  ///
  /// Errors: INVALID_ARGUMENT (MALFORMED_GRANT; PROTOCOL_VERSION when the consumer speaks another
  /// version of the ring's protocol).
  static absl::StatusOr<ProducerGrant> Parse(std::string_view bytes);
};

}  // namespace onepiece::ring
