#include "cluster/node/identity_upkeep.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/identity/secret_files.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/replicas.h"
#include "onepiece/v1/identity.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace onepiece::node {
namespace {

// A revocation reaches every node within 5 s, so the table is asked for again soon.
constexpr base::Duration kFirstTablePause = std::chrono::milliseconds(100);
constexpr base::Duration kMaxTablePause = std::chrono::seconds(1);
constexpr base::Duration kFirstRenewalPause = std::chrono::seconds(1);
constexpr base::Duration kMaxRenewalPause = std::chrono::minutes(1);

using IdentityStub = v1::IdentityService::Stub;

// One round over the replicas. The caller's own backoff comes before the next one.
template <typename Request, typename Response>
absl::StatusOr<Response> AskOnce(rpc::Replicas& replicas, base::Duration timeout,
                                 const std::stop_token& stop,
                                 grpc::Status (IdentityStub::*method)(grpc::ClientContext*,
                                                                      const Request&, Response*),
                                 const Request& request) {
  rpc::LeaderSearch search(replicas);
  for (;;) {
    const rpc::Replica replica = search.Next();
    IdentityStub stub(replica.channel);
    grpc::ClientContext context;
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    rpc::SetTimeout(context, timeout);
    Response response;
    const absl::Status status = rpc::FromGrpc((stub.*method)(&context, request, &response));
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    if (!rpc::IsAboutTheReplica(status)) {
      search.Answered();
      if (!status.ok()) return status;
      return response;
    }
    if (search.Failed(status) != base::Duration::zero()) return status;
  }
}

// The fingerprint of the CA that signed `certificate`; empty when none of these did.
std::string SignerAmong(const identity::TrustBundle& bundle,
                        const identity::Certificate& certificate) {
  for (const identity::Certificate& authority : bundle.authorities()) {
    // At a moment when both were valid: an expired certificate has a signer too.
    const base::WallTime then = std::max(certificate.not_before(), authority.not_before());
    if (identity::TrustBundle(authority)
            .Verify(certificate, identity::Purpose::kClient, then)
            .ok()) {
      return authority.Fingerprint();
    }
  }
  return {};
}

// The certificate's hosts without the name that every node's certificate gets.
v1::RenewRequest RenewalOf(const identity::PrivateKey& key, const identity::Certificate& old) {
  v1::RenewRequest request;
  request.set_signing_request(identity::SigningRequest::Make(key).ToPem());
  for (const std::string& host : old.Hosts())
    if (host != identity::kNodeDnsName) request.add_hosts(host);
  return request;
}

// What came must be of use to this node, or it would lock itself out.
absl::Status CheckRenewed(const identity::PrivateKey& key, const identity::Certificate& old,
                          const identity::Certificate& renewed, const identity::TrustBundle& bundle,
                          base::WallTime now) {
  ONEPIECE_RETURN_IF_ERROR(identity::CheckKeyIsOf(key, renewed));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Subject subject,
                            bundle.Verify(renewed, identity::Purpose::kServer, now));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Subject before, old.GetSubject());
  if (subject == before) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kInternal, "OTHER_SUBJECT",
                         "the new certificate is that of " + identity::Describe(subject) +
                             ", and this is " + identity::Describe(before));
}

}  // namespace

IdentityCalls IdentityCallsTo(rpc::Replicas& replicas, base::Duration timeout) {
  return {.get_table =
              [&replicas, timeout](const std::stop_token& stop) {
                return AskOnce(replicas, timeout, stop, &IdentityStub::GetIdentityTable,
                               v1::GetIdentityTableRequest());
              },
          .renew =
              [&replicas, timeout](const std::stop_token& stop, const v1::RenewRequest& request) {
                return AskOnce(replicas, timeout, stop, &IdentityStub::Renew, request);
              }};
}

IdentityUpkeep::IdentityUpkeep(rpc::Door& door, std::string folder, IdentityCalls calls,
                               telemetry::Metrics* metrics, base::Clock& clock)
    : door_(door),
      folder_(std::move(folder)),
      files_(identity::FilesOf(folder_, identity::kNodeName)),
      calls_(std::move(calls)),
      clock_(clock),
      table_backoff_(kFirstTablePause, kMaxTablePause),
      renewal_backoff_(kFirstRenewalPause, kMaxRenewalPause),
      scrape_(metrics, [this](telemetry::Metrics& shown) {
        const base::MutexLock lock(mutex_);
        shown
            .Gauge("onepiece_certificate_expiry_seconds",
                   "Time until the node's certificate ends; below 0: it has ended")
            .Set(expires_ ? base::ToSeconds(*expires_ - clock_.WallNow())
                          : std::numeric_limits<double>::quiet_NaN());
        telemetry::RaiseTo(shown.Counter("onepiece_identity_failures_total",
                                         "Attempts to keep the node's identity fresh that failed"),
                           static_cast<double>(failures_));
      }) {
  if (folder_.empty()) return;
  // The first report says who signed it.
  if (const auto certificate = identity::ReadCertificateFile(files_.certificate); certificate.ok())
    NoteSigner(*certificate);
}

IdentityUpkeep::~IdentityUpkeep() { Stop(); }

void IdentityUpkeep::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void IdentityUpkeep::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void IdentityUpkeep::Hear(std::uint64_t epoch) {
  const base::MutexLock lock(mutex_);
  if (epoch <= announced_) return;
  announced_ = epoch;
  heard_ = true;
  changed_.NotifyAll();
}

void IdentityUpkeep::FillIn(v1::ReportNodeRequest& report) const {
  const base::MutexLock lock(mutex_);
  report.set_identity_epoch(epoch_);
  report.set_signing_authority(signer_);
}

std::uint64_t IdentityUpkeep::failures() const {
  const base::MutexLock lock(mutex_);
  return failures_;
}

void IdentityUpkeep::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const base::Duration pause = Step(stop);
    base::MutexLock lock(mutex_);
    clock_.WaitUntil(changed_, lock, stop, clock_.Now() + pause,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return heard_; });
  }
}

base::Duration IdentityUpkeep::Step(const std::stop_token& stop) {
  bool stale = false;
  {
    const base::MutexLock lock(mutex_);
    heard_ = false;
    stale = announced_ > epoch_;
  }
  base::Duration pause = base::Scaled(kLookInterval);
  bool failed = false;
  const auto done = [&](std::string_view what, const absl::Status& status, Backoff& backoff) {
    if (status.ok()) {
      backoff.Reset();
    } else if (!stop.stop_requested()) {
      failed = true;
      NoteFailure(what, status);
      pause = std::min(pause, backoff.Next());
    }
  };
  if (stale) done("identity table", RefreshTable(stop), table_backoff_);
  // Also when there is no table: the certificate ends all the same.
  if (!folder_.empty()) done("certificate", LookAtCertificate(stop), renewal_backoff_);
  if (!failed) last_failure_.clear();
  return pause;
}

absl::Status IdentityUpkeep::RefreshTable(const std::stop_token& stop) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::IdentityTable table, calls_.get_table(stop));
  // The files come first: while they cannot be written, this node's epoch stays behind, and so the
  // NodeManager does not count on it when it changes from one CA to the next.
  if (!folder_.empty() && !table.authorities().empty())
    ONEPIECE_RETURN_IF_ERROR(TakeAuthorities(table.authorities()));
  signing_ = table.signing_authority();
  door_.Take(table);
  const base::MutexLock lock(mutex_);
  epoch_ = table.epoch();
  return absl::OkStatus();
}

// gRPC looks at the file every second, and judges new connections by it.
absl::Status IdentityUpkeep::TakeAuthorities(const std::string& pem) {
  ONEPIECE_ASSIGN_OR_RETURN(const identity::TrustBundle next, identity::TrustBundle::FromPem(pem));
  const absl::StatusOr<identity::TrustBundle> now = identity::ReadTrustFile(files_.authorities);
  if (now.ok() && now->ToPem() == next.ToPem()) return absl::OkStatus();
  ONEPIECE_RETURN_IF_ERROR(identity::WriteSecretFile(files_.authorities, next.ToPem()));
  spdlog::info("op=identity detail=\"believes {} CAs now\"", next.authorities().size());
  return absl::OkStatus();
}

absl::Status IdentityUpkeep::LookAtCertificate(const std::stop_token& stop) {
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Certificate certificate,
                            identity::ReadCertificateFile(files_.certificate));
  NoteSigner(certificate);
  const base::WallTime now = clock_.WallNow();
  // No server takes it any more, so there is nobody to ask.
  if (now >= certificate.not_after()) {
    return base::MakeError(
        absl::StatusCode::kUnauthenticated, "CERTIFICATE_EXPIRED",
        "the certificate of this node ended at " + identity::FormatTime(certificate.not_after()) +
            ": ask an admin for a join token, and run `onepiece join HOST --token …` here");
  }
  if (!IsRenewalDue(certificate)) return absl::OkStatus();
  return Renew(stop, certificate);
}

void IdentityUpkeep::NoteSigner(const identity::Certificate& certificate) {
  const std::string serial = certificate.SerialNumber();
  {
    const base::MutexLock lock(mutex_);
    // Once found it stays: a rotation's last step takes the CA out of the file.
    if (serial == serial_ && !signer_.empty()) return;
  }
  const absl::StatusOr<identity::TrustBundle> bundle = identity::ReadTrustFile(files_.authorities);
  std::string signer = bundle.ok() ? SignerAmong(*bundle, certificate) : std::string();
  const base::MutexLock lock(mutex_);
  serial_ = serial;
  signer_ = std::move(signer);
  expires_ = certificate.not_after();
}

bool IdentityUpkeep::IsRenewalDue(const identity::Certificate& certificate) const {
  if (clock_.WallNow() >= certificate.RenewalTime()) return true;
  const base::MutexLock lock(mutex_);
  return !signing_.empty() && signing_ != signer_;
}

absl::Status IdentityUpkeep::Renew(const std::stop_token& stop, const identity::Certificate& old) {
  ONEPIECE_ASSIGN_OR_RETURN(const identity::PrivateKey key, identity::ReadKeyFile(files_.key));
  ONEPIECE_ASSIGN_OR_RETURN(const v1::RenewResponse answer,
                            calls_.renew(stop, RenewalOf(key, old)));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Certificate renewed,
                            identity::Certificate::FromPem(answer.certificate()));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::TrustBundle bundle,
                            identity::TrustBundle::FromPem(answer.authorities()));
  ONEPIECE_RETURN_IF_ERROR(CheckRenewed(key, old, renewed, bundle, clock_.WallNow()));
  // With the same key, no moment of this leaves files that do not fit each other.
  ONEPIECE_RETURN_IF_ERROR(
      identity::SaveIdentity(folder_, identity::kNodeName, key, renewed, bundle));
  NoteSigner(renewed);
  spdlog::info("op=identity detail=\"certificate renewed\" serial={} until={}",
               renewed.SerialNumber(), identity::FormatTime(renewed.not_after()));
  return absl::OkStatus();
}

void IdentityUpkeep::NoteFailure(std::string_view what, const absl::Status& status) {
  {
    const base::MutexLock lock(mutex_);
    ++failures_;
  }
  std::string text = std::string(what) + ": " + base::Message(status);
  if (text == last_failure_) return;
  const bool ended = base::GetReason(status).reason == "CERTIFICATE_EXPIRED";
  spdlog::log(ended ? spdlog::level::err : spdlog::level::warn, "op=identity {}", text);
  last_failure_ = std::move(text);
}

}  // namespace onepiece::node
