#include "nodemanager/service/addresses.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "grpcpp/channel.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kMaxNamed = 5;

absl::Status Unreachable(const char* reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason, message);
}

// A peer that is no IP address, such as a socket of this host, tells nothing.
bool IsFromElsewhere(const std::string& peer) {
  const std::string plain = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  for (const std::string_view family : {"ipv4:", "ipv6:"}) {
    if (plain.starts_with(family)) return !IsLoopback(plain.substr(family.size()));
  }
  return false;
}

}  // namespace

bool IsLoopback(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  // A socket for both families shows an IPv4 address like this.
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped)) host.remove_prefix(kMapped.size());
  const bool digits = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return (digits && host.starts_with("127.")) || host == "::1" ||
         absl::EqualsIgnoreCase(absl::string_view(host.data(), host.size()), "localhost");
}

absl::Status CheckLoopback(const StateMachine& state, const v1::Node& node,
                           const std::string& peer) {
  const bool loopback = IsLoopback(node.address());
  if (loopback && IsFromElsewhere(peer)) {
    return Unreachable("LOOPBACK_ADDRESS",
                       absl::StrCat("no other host can dial ", node.address(), " of node '",
                                    node.node_id(), "', which registers from ", peer,
                                    ": start it with --listen or --advertise and an address that "
                                    "the others can dial"));
  }
  std::vector<std::string> others;  // Of the other kind.
  for (const auto& [id, record] : state.nodes()) {
    const v1::Node& other = record.node();
    if (id == node.node_id() || !IsAlive(other) || IsLoopback(other.address()) == loopback)
      continue;
    if (others.size() == kMaxNamed) {
      others.emplace_back("…");
      break;
    }
    others.push_back(absl::StrCat(id, " (", other.address(), ")"));
  }
  if (others.empty()) return absl::OkStatus();
  const std::string named = absl::StrJoin(others, ", ");
  return Unreachable(
      "LOOPBACK_ADDRESS",
      loopback ? absl::StrCat("node '", node.node_id(), "' advertises ", node.address(),
                              ", which no other host can dial, and the cluster has nodes that are "
                              "reached by other addresses: ",
                              named, ". Start it with --advertise and an address of its host")
               : absl::StrCat("node '", node.node_id(), "' at ", node.address(),
                              " may not be able to dial nodes with loopback addresses: ", named,
                              ". Start those again with --advertise and an address of their host"));
}

absl::Status UnreachableAddress(const std::string& address, base::Duration limit,
                                const std::string& why) {
  return Unreachable(
      "UNREACHABLE_ADDRESS",
      absl::StrCat("the NodeManager cannot connect to ", address, " within ",
                   limit / std::chrono::milliseconds(1), " ms",
                   why.empty() ? "" : absl::StrCat(" (", why, ")"),
                   ": give --advertise an address that all hosts can dial, and open its port"));
}

Dialling::Dialling(std::string address, base::Duration limit)
    : address_(std::move(address)),
      limit_(limit),
      deadline_(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                             gpr_time_from_nanos(limit.count(), GPR_TIMESPAN))),
      channel_(rpc::MakeChannel(address_)) {
  channel_->GetState(true);
}

bool Dialling::Answers() const {
  for (;;) {
    const grpc_connectivity_state state = channel_->GetState(true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return false;
    if (!channel_->WaitForStateChange(state, deadline_)) return false;
  }
}

absl::Status Dialling::Check() const {
  return Answers() ? absl::OkStatus() : UnreachableAddress(address_, limit_, "");
}

}  // namespace onepiece::nodemanager
