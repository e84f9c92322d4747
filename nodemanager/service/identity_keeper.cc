#include "nodemanager/service/identity_keeper.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/seal.h"
#include "cluster/identity/secret_files.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/door.h"
#include "google/protobuf/util/json_util.h"
#include "onepiece/v1/identity.grpc.pb.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::uint32_t kIdentityLevel = 5;
constexpr auto kFetchLimit = std::chrono::seconds(2);
constexpr base::Duration kFirstFetchPause = std::chrono::seconds(1),
                         kLongestFetchPause = std::chrono::seconds(30);
constexpr char kJoinTokenFile[] = "join-token.json";

absl::StatusOr<identity::Authority> Open(const std::string& key,
                                         const v1::AuthorityRecord& record) {
  return identity::OpenAuthority(key, record.certificate(), record.sealed_key());
}

bool IsMissing(const absl::Status& status) { return absl::IsNotFound(status); }

}  // namespace

IdentityKeeper::IdentityKeeper(Controller& controller, base::Clock& clock,
                               IdentityKeeperOptions options)
    : controller_(controller),
      clock_(clock),
      options_(std::move(options)),
      fetch_pause_(kFirstFetchPause) {}

void IdentityKeeper::Start() {
  worker_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const std::uint64_t seen = controller_.version();
      Look();
      controller_.WaitForChange(seen, stop, clock_, clock_.Now() + options_.look_period);
      // Changes come in bursts, and a round looks at all of them.
      clock_.Pause(stop,
                   std::min<base::Duration>(options_.look_period, std::chrono::milliseconds(50)));
    }
  });
}

void IdentityKeeper::Stop() {
  worker_.request_stop();
  if (worker_.joinable()) worker_.join();
}

IdentityKeeper::Known IdentityKeeper::Read() const {
  Known known;
  controller_.Read([&](const StateMachine& state) {
    known.level = state.feature_level();
    known.epoch = state.identity().epoch();
    known.cluster = state.cluster_id();
    if (!state.identity().authorities().empty())
      known.authority = state.identity().authorities().front();
  });
  return known;
}

void IdentityKeeper::Refresh() {
  if (options_.door == nullptr) return;
  const std::int64_t now = base::ToUnixMs(clock_.WallNow());
  std::optional<v1::IdentityTable> table;
  controller_.Read([&](const StateMachine& state) {
    if (state.identity().epoch() > options_.door->epoch()) table = state.identity().Table(now);
  });
  if (!table) return;
  options_.door->Take(*table);
  // Streams of callers that were revoked must end.
  controller_.Notify();
}

void IdentityKeeper::Look() {
  const base::MutexLock lock(look_mutex_);
  Refresh();
  const Known known = Read();
  if (options_.door != nullptr) KeepSealKey(known);
  if (known.level < kIdentityLevel || known.cluster.empty() || !controller_.Term().ok()) return;
  if (options_.door != nullptr) {
    if (const absl::Status status = Seed(known); !status.ok()) Complain("seed_authority", status);
    // The CA may be there since the line above.
    if (const absl::Status status = SeedJoinToken(Read()); !status.ok())
      Complain("seed_join_token", status);
  }
  CommitUses();
}

void IdentityKeeper::Complain(const char* operation, const absl::Status& status) {
  std::string complaint = absl::StrCat(operation, base::Message(status));
  if (complaint == last_complaint_) return;
  last_complaint_ = std::move(complaint);
  spdlog::error("op={} error=\"{}\"", operation, base::Message(status));
}

void IdentityKeeper::SetKey(std::string key) {
  const base::MutexLock lock(key_mutex_);
  key_ = std::move(key);
}

std::string IdentityKeeper::key() const {
  const base::MutexLock lock(key_mutex_);
  return key_;
}

absl::StatusOr<std::string> IdentityKeeper::SealKey() {
  std::string key = this->key();
  if (!key.empty()) return key;
  return base::MakeError(absl::StatusCode::kUnavailable, "NO_SEAL_KEY",
                         "this NodeManager has not got the seal key from another one yet");
}

// The file may be of a replica that began a cluster whose first CA came from another one. So a key
// counts when it opens the CA of the state.
void IdentityKeeper::KeepSealKey(const Known& known) {
  if (key().empty()) {
    const absl::StatusOr<std::string> read = identity::ReadSealKeyFile(options_.folder);
    if (read.ok() && (!known.authority || Open(*read, *known.authority).ok())) SetKey(*read);
    if (!read.ok() && !IsMissing(read.status())) Complain("read_seal_key", read.status());
  }
  if (known.authority && key().empty() && clock_.Now() >= next_fetch_)
    FetchSealKey(*known.authority);
}

void IdentityKeeper::FetchSealKey(const v1::AuthorityRecord& authority) {
  absl::Status last = base::MakeError(absl::StatusCode::kUnavailable, "NO_SEAL_KEY",
                                      "no other NodeManager is known");
  for (const std::string& address : options_.addresses()) {
    const auto stub = v1::IdentityService::NewStub(rpc::MakeChannel(address));
    const auto answer = rpc::Call(*stub, &v1::IdentityService::Stub::GetSealKey, {}, kFetchLimit);
    last = answer.ok() ? TakeSealKey(answer->seal_key(), authority) : answer.status();
    if (last.ok()) {
      spdlog::info("op=fetch_seal_key from={}", address);
      return;
    }
  }
  next_fetch_ = clock_.Now() + fetch_pause_;
  fetch_pause_ = std::min(2 * fetch_pause_, kLongestFetchPause);
  Complain("fetch_seal_key", last);
}

absl::Status IdentityKeeper::TakeSealKey(const std::string& key,
                                         const v1::AuthorityRecord& authority) {
  if (key.size() != identity::kSealKeyBytes || !Open(key, authority).ok()) {
    return base::MakeError(absl::StatusCode::kUnavailable, "NO_SEAL_KEY",
                           "the key of another NodeManager does not open the cluster's CA");
  }
  // A file with another key is kept beside it: it may open something that nobody here knows of.
  const std::string path = identity::SealKeyPath(options_.folder);
  if (identity::ReadSealKeyFile(options_.folder).ok())
    (void)std::rename(path.c_str(), (path + ".other").c_str());
  ONEPIECE_RETURN_IF_ERROR(identity::WriteSealKeyFile(options_.folder, key));
  SetKey(key);
  return absl::OkStatus();
}

absl::StatusOr<v1::AuthorityRecord> IdentityKeeper::Sealed(const identity::Authority& authority) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string key, SealKey());
  v1::AuthorityRecord record;
  record.set_certificate(authority.certificate().ToPem());
  record.set_sealed_key(identity::SealAuthority(key, authority));
  return record;
}

absl::StatusOr<identity::Authority> IdentityKeeper::Signer() {
  if (options_.door == nullptr) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "INSECURE",
                           "this cluster runs with --insecure and has no certificates");
  }
  const Known known = Read();
  if (!known.authority) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "NO_AUTHORITY",
        known.level < kIdentityLevel
            ? absl::StrCat("certificates need feature level ", kIdentityLevel,
                           ", and the cluster's is ", known.level,
                           ": when all NodeManagers are updated, run `onepiece cluster upgrade`")
            : "no NodeManager has the key of the cluster's CA (ca.key): certificates are made by "
              "hand, with `onepiece cert create-node`");
  }
  ONEPIECE_ASSIGN_OR_RETURN(const std::string key, SealKey());
  absl::StatusOr<identity::Authority> authority = Open(key, *known.authority);
  if (!authority.ok())
    SetKey("");  // The CA is sealed with another key: the next round asks for it.
  return authority;
}

absl::Status IdentityKeeper::Seed(const Known& known) {
  if (known.authority) return absl::OkStatus();
  absl::StatusOr<identity::Authority> authority = identity::LoadAuthority(options_.folder);
  if (IsMissing(authority.status())) return absl::OkStatus();  // Others make the certificates.
  ONEPIECE_RETURN_IF_ERROR(authority.status());
  if (authority->certificate().Organization() != known.cluster) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "WRONG_CLUSTER",
        absl::StrCat("ca.pem is the CA of cluster '", authority->certificate().Organization(),
                     "', and this is '", known.cluster, "'"));
  }
  if (key().empty()) {
    // The file comes first: a CA whose seal key is lost could never sign again.
    const std::string made = identity::MakeSealKey();
    ONEPIECE_RETURN_IF_ERROR(identity::WriteSealKeyFile(options_.folder, made));
    SetKey(made);
  }
  v1::Command command;
  v1::SetAuthorities& change = *command.mutable_set_authorities();
  ONEPIECE_ASSIGN_OR_RETURN(*change.add_authorities(), Sealed(*authority));
  change.set_rotation(v1::AuthorityStatus::NONE);
  change.set_base_epoch(known.epoch);
  ONEPIECE_RETURN_IF_ERROR(controller_.Propose(std::move(command)).status());
  spdlog::info("op=seed_authority fingerprint={}", authority->certificate().Fingerprint());
  Refresh();
  return absl::OkStatus();
}

absl::Status IdentityKeeper::SeedJoinToken(const Known& known) {
  if (!known.authority) return absl::OkStatus();
  const std::string path = absl::StrCat(options_.folder, "/", kJoinTokenFile);
  const absl::StatusOr<std::string> text = identity::ReadSecretFile(path);
  if (IsMissing(text.status())) return absl::OkStatus();
  ONEPIECE_RETURN_IF_ERROR(text.status());
  v1::Command command;
  v1::JoinToken& token = *command.mutable_create_token()->mutable_join();
  if (!google::protobuf::util::JsonStringToMessage(*text, &token).ok()) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "BAD_TOKEN_FILE",
                           path + " holds no join token: remove it");
  }
  if (token.creator().empty()) token.set_creator("init");
  token.set_created_unix_ms(base::ToUnixMs(clock_.WallNow()));
  const absl::Status status = controller_.Propose(std::move(command)).status();
  // Whether it is taken, was taken before, or has expired: it needs no further try.
  if (!status.ok() && !absl::IsAlreadyExists(status) && !absl::IsInvalidArgument(status))
    return status;
  spdlog::info("op=seed_join_token result=\"{}\"", status.ok() ? "ok" : base::Message(status));
  if (unlink(path.c_str()) != 0)
    spdlog::warn("op=seed_join_token detail=\"cannot remove {}\"", path);
  return absl::OkStatus();
}

void IdentityKeeper::CommitUses() {
  if (clock_.Now() < next_uses_) return;
  next_uses_ = clock_.Now() + options_.use_period;
  v1::Command command;
  *command.mutable_add_uses() = controller_.identity_reports().CollectUses();
  if (command.add_uses().uses().empty()) return;
  const v1::AddUses uses = command.add_uses();
  const absl::Status status = controller_.Propose(std::move(command)).status();
  // Uses whose commit is unknown are given up rather than counted twice.
  if (!status.ok() && base::GetReason(status).reason != "OUTCOME_UNKNOWN")
    controller_.identity_reports().ReturnUses(uses);
}

}  // namespace onepiece::nodemanager
