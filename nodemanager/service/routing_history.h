// The routing table of one workflow set as its watchers get it: whole, or as the changes since the
// table that they have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// Keeps the last tables. A watcher goes to the newest one in one step, however many it has missed,
/// because each step costs it the making of a table. Each message is made and serialised once,
/// however many watchers get it.
///
/// Threading: thread-compatible.
/// Bounds: kKept tables. A watcher that has none of them, or whose changes would be no shorter than
/// the table, gets the table.
class RoutingHistory {
 public:
  static constexpr std::size_t kKept = 16;

  /// Takes a newer table, or the first one. The other direction is for a set whose epochs have
  /// begun anew: it forgets the tables.
  void Update(v1::RoutingTable table);
  /// nullopt before the first table.
  [[nodiscard]] std::optional<std::uint64_t> epoch() const {
    return tables_.empty() ? std::nullopt : std::optional(tables_.front().epoch());
  }

  struct Message {
    grpc::ByteBuffer bytes;   ///< A RoutingTable.
    std::uint64_t epoch = 0;  ///< What the watcher has when it has taken it.
    bool whole = false;       ///< True for a whole table, false for a delta.
  };
  /// Leads a watcher that has the table of `known` (0: none) to the newest one, by a delta when
  /// that is possible. To a watcher that has the newest table the delta says just that. REQUIRES:
  /// there is a table.
  [[nodiscard]] Message Next(std::uint64_t known);
  /// The whole table.
  /// REQUIRES: there is a table.
  [[nodiscard]] Message Whole();

 private:
  std::deque<v1::RoutingTable> tables_;             // Newest first.
  std::map<std::uint64_t, grpc::ByteBuffer> next_;  // To the newest table, by what is known.
};

/// The message as gRPC sends it.
grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message);

}  // namespace onepiece::nodemanager
