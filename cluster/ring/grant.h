// What a consumer and a producer tell each other over the control plane before the first message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/ids.h"
#include "cluster/ring/layout.h"

namespace onepiece::ring {

/// Who asks for enrollment.
struct ProducerIdentity {
  ProducerId producer_id;
  Incarnation incarnation;
  fabric::Offer offer;  ///< Of the dialer that the producer will connect with.
  std::string name;     ///< For people: the node's.
};

/// What an enrolled producer may write into: one segment. Travels in the answer of the control
/// plane's call.
struct ProducerGrant {
  fabric::RemoteRegion region;
  Shape shape = Shape::kShared;
  std::uint16_t owner = 0;
  Generation generation;
  std::uint64_t capacity_bytes = 0;
  std::uint32_t slots = 0;

  [[nodiscard]] std::string Serialize() const;
  /// Checks form, geometry and that the geometry fits the region's length.
  /// Errors: INVALID_ARGUMENT with reason MALFORMED_GRANT or, from a consumer that speaks another
  /// version of the ring's protocol, PROTOCOL_VERSION.
  static absl::StatusOr<ProducerGrant> Parse(std::string_view bytes);
};

}  // namespace onepiece::ring
