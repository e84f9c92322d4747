// Whether the nodes of a cluster can reach each other by the addresses that they advertise.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "grpcpp/channel.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// Returns true when only the same host can dial this host:port: 127.0.0.0/8, ::1 or localhost.
/// Names are not looked up.
bool IsLoopback(std::string_view address);

/// Checks that the node's address and those of the other live nodes are all of one host, or all
/// reachable from elsewhere. `peer` is where the registration comes from, as gRPC writes it.
///
/// Errors: FAILED_PRECONDITION (LOOPBACK_ADDRESS), which says who has to be given --advertise.
absl::Status CheckLoopback(const StateMachine& state, const v1::Node& node,
                           const std::string& peer);

/// An UNREACHABLE_ADDRESS that names the address and says what to do. `why` may be empty.
absl::Status UnreachableAddress(const std::string& address, base::Duration limit,
                                const std::string& why);

/// A connection to a gRPC server that is being made, so that others can be made at the same time.
/// It tells a process that runs from one that stands still, whose connections the kernel still
/// takes.
///
/// Ownership: closes the connection.
class Dialling {
 public:
  /// Begins to connect. The attempt ends after `limit`.
  Dialling(std::string address, base::Duration limit);

  /// Returns true when a gRPC server answers there. A refused connection ends the wait.
  ///
  /// Blocking: until `limit` after the beginning at most.
  [[nodiscard]] bool Answers() const;
  /// Does the same, and says what to do about it.
  ///
  /// Errors: FAILED_PRECONDITION (UNREACHABLE_ADDRESS), which names the address.
  [[nodiscard]] absl::Status Check() const;

 private:
  const std::string address_;
  const base::Duration limit_;
  const gpr_timespec deadline_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace onepiece::nodemanager
