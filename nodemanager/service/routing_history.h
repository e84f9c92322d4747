// The routing table of one workflow set as its watchers get it: whole, or as the changes since the
// table that they have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// Keeps the newest table and the last changes. Each is serialised once, however many watch.
///
/// Threading: thread-compatible.
/// Bounds: the changes that it keeps are together no larger than the table. A watcher that has
/// missed more gets the table.
class RoutingHistory {
 public:
  /// Takes a newer table, or the first one. The other direction is for a set whose epochs have
  /// begun anew: it forgets the changes.
  void Update(v1::RoutingTable table);
  /// nullopt before the first table.
  [[nodiscard]] std::optional<std::uint64_t> epoch() const {
    return table_ ? std::optional(table_->epoch()) : std::nullopt;
  }

  struct Message {
    grpc::ByteBuffer bytes;   ///< A RoutingTable.
    std::uint64_t epoch = 0;  ///< What the watcher has when it has taken it.
    bool whole = false;       ///< True for a whole table, false for a delta.
  };
  /// The next message for a watcher that has the table of `known` (0: none). It gets a delta
  /// when that is possible. To a watcher that has the newest table the delta says just that.
  /// REQUIRES: there is a table.
  [[nodiscard]] Message Next(std::uint64_t known);
  /// The whole table.
  /// REQUIRES: there is a table.
  [[nodiscard]] Message Whole();

 private:
  struct Delta {
    std::uint64_t from = 0, to = 0;
    grpc::ByteBuffer bytes;
    std::size_t size = 0;
  };

  std::optional<v1::RoutingTable> table_;
  std::optional<grpc::ByteBuffer> whole_;  // Of table_, once somebody needed it.
  std::deque<Delta> deltas_;               // Oldest first. Each begins where the one before ends.
  std::size_t delta_bytes_ = 0;
};

/// The message as gRPC sends it.
grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message);

}  // namespace onepiece::nodemanager
