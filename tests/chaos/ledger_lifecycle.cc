#include "tests/chaos/ledger_lifecycle.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/tls.h"
#include "onepiece/v1/telemetry.grpc.pb.h"
#include "tests/channel_with.h"
#include "tests/chaos/ledger_verb.h"
#include "tests/eventually.h"

namespace onepiece::ledger {
namespace {

using Credentials = std::shared_ptr<grpc::ChannelCredentials>;
using nlohmann::json;
using std::chrono::seconds;

constexpr auto kRotated = seconds(90), kServed = seconds(10), kRevoked = seconds(5),
               kCallLimit = seconds(2);

absl::Status NotDone(const std::string& what) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "NO_FAULT", what);
}

absl::StatusOr<json> Tell(const Cluster& cluster, const QStringList& arguments) {
  ONEPIECE_ASSIGN_OR_RETURN(
      const testing::Outcome told,
      RunVerb(cluster, arguments + QStringList{"--json"} + InItsDataDir(cluster)));
  return told.Document();
}

/// Every process of the cluster that runs just now.
std::vector<std::string> Everybody(const Cluster& cluster) {
  std::vector<std::string> addresses;
  for (const Role role : {Role::kDatabase, Role::kInstance, Role::kProxy, Role::kNodeManager}) {
    for (const local::ProcessRecord& record : cluster.Ready(role))
      addresses.push_back(record.address);
  }
  return addresses;
}

/// How a process answers somebody who may read, over a new connection.
absl::Status Ask(const std::string& address, const Credentials& credentials) {
  v1::TelemetryService::Stub stub(testing::ChannelWith(address, credentials));
  v1::ListSpansRequest request;
  request.set_uid(base::Uid::GenerateRandom().ToString());
  return rpc::Call(stub, &v1::TelemetryService::Stub::ListSpans, request, kCallLimit).status();
}

/// Waits until each process has answered with this reason once; empty: served.
absl::Status Await(const Cluster& cluster, const Credentials& credentials,
                   const std::string& reason, base::Duration limit) {
  std::vector<std::string> left = Everybody(cluster);
  if (left.empty()) return NotDone("nobody runs");
  std::string last;
  const bool done = testing::Eventually(base::Scaled(limit), [&] {
    std::erase_if(left, [&](const std::string& address) {
      const absl::Status status = Ask(address, credentials);
      last = address + ": " + status.ToString();
      return reason.empty() ? status.ok() : base::GetReason(status).reason == reason;
    });
    return left.empty();
  });
  if (done) return absl::OkStatus();
  return NotDone(absl::StrCat(left.size(), " processes do not answer ",
                              reason.empty() ? "a bystander" : reason, "; ", last));
}

class RotateAuthority final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury&) override {
    ONEPIECE_ASSIGN_OR_RETURN(const json before, Step(cluster, "none", "introduced"));
    ONEPIECE_RETURN_IF_ERROR(Step(cluster, "introduced", "overlap").status());
    ONEPIECE_ASSIGN_OR_RETURN(const json after, Step(cluster, "overlap", "none"));
    if (after["fingerprint"] == before["fingerprint"]) return NotDone("the CA is the same");
    return absl::OkStatus();
  }
  absl::Status Heal(Cluster&, const Injury&) override { return absl::OkStatus(); }

 private:
  /// Waits until all nodes have followed, and takes the next step.
  static absl::StatusOr<json> Step(const Cluster& cluster, const std::string& from,
                                   const std::string& to) {
    absl::StatusOr<json> status;
    const bool followed = testing::Eventually(base::Scaled(kRotated), [&] {
      status = Tell(cluster, {"cert", "authority"});
      return status.ok() && status->value("rotation", "") == from &&
             (*status)["waiting_for"].empty();
    });
    if (!followed) {
      return NotDone("nodes do not follow the CA: " +
                     (status.ok() ? status->dump() : status.status().ToString()));
    }
    ONEPIECE_ASSIGN_OR_RETURN(json next, Tell(cluster, {"cert", "rotate"}));
    if (next.value("rotation", "") != to) return NotDone("cert rotate: " + next.dump());
    return next;
  }
};

class RevokeBystander final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) override {
    const QString name = "bystander-" + QString::number(injury.dice);
    ONEPIECE_RETURN_IF_ERROR(RevokeToken(cluster, name));
    return RevokeCertificate(cluster, name);
  }
  absl::Status Heal(Cluster&, const Injury&) override { return absl::OkStatus(); }

 private:
  static absl::Status RevokeToken(const Cluster& cluster, const QString& name) {
    ONEPIECE_ASSIGN_OR_RETURN(
        const json made, Tell(cluster, {"token", "create", "--name", name, "--scope", "read"}));
    const local::ClusterState state = cluster.State();
    ONEPIECE_ASSIGN_OR_RETURN(
        const Credentials credentials,
        rpc::MakeTokenCredentials(state.identity + "/ca.pem", made.value("token", ""),
                                  state.cluster_id, base::SystemClock()));
    ONEPIECE_RETURN_IF_ERROR(Await(cluster, credentials, "", kServed));
    ONEPIECE_RETURN_IF_ERROR(
        Tell(cluster, {"token", "revoke", QString::fromStdString(made.value("id", ""))}).status());
    return Await(cluster, credentials, "WRONG_TOKEN", kRevoked);
  }

  static absl::Status RevokeCertificate(const Cluster& cluster, const QString& name) {
    const std::string identity = cluster.State().identity;
    // The key of a later CA is in the replicated state alone.
    if (!identity::LoadAuthority(identity).ok()) return absl::OkStatus();
    const QString folder = QString::fromStdString(cluster.folder()) + "/" + name;
    ONEPIECE_RETURN_IF_ERROR(
        Tell(cluster, {"cert", "create-client", name, "--scope", "read", "--ca-dir",
                       QString::fromStdString(identity), "--out", folder})
            .status());
    ONEPIECE_ASSIGN_OR_RETURN(
        const Credentials credentials,
        rpc::MakeChannelCredentials(
            {.folder = folder.toStdString(), .name = name.toStdString(), .roles = {}},
            base::SystemClock()));
    ONEPIECE_RETURN_IF_ERROR(Await(cluster, credentials, "", kServed));
    ONEPIECE_ASSIGN_OR_RETURN(const json shown,
                              Tell(cluster, {"cert", "show", folder + "/" + name + ".pem"}));
    ONEPIECE_RETURN_IF_ERROR(
        Tell(cluster, {"cert", "revoke", QString::fromStdString(shown.value("serial", ""))})
            .status());
    return Await(cluster, credentials, "CERTIFICATE_REVOKED", kRevoked);
  }
};

}  // namespace

std::unique_ptr<Fault> MakeRotateAuthority() { return std::make_unique<RotateAuthority>(); }
std::unique_ptr<Fault> MakeRevokeBystander() { return std::make_unique<RevokeBystander>(); }

}  // namespace onepiece::ledger
