// Who is in the cluster, as far as it is replicated: CAs, tokens, certificates, tenants and what
// these have used (docs/security.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/status.h"
#include "onepiece/v1/identity.pb.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// A part of the StateMachine, for commands of version 5. It holds hashes of tokens, never their
/// secrets, and the CAs' keys only sealed (cluster/identity/seal.h).
///
/// What is bounded: kMaxBytes for all that is serialised but uses, and the numbers below. When
/// there is no room, what has expired goes first. If that is not enough the change is refused,
/// RESOURCE_EXHAUSTED (IDENTITY_FULL). Expired tokens and certificates are kept for kKeptExpiredMs,
/// so that people see them and joiners learn TOKEN_EXPIRED. Of uses, the oldest hours are dropped.
///
/// Threading: thread-compatible.
/// Blocking: never. Pure: times come in commands, in Unix milliseconds.
/// Invariants: epoch() grows with each change of what Table() says, but for what merely expires.
class IdentityRecords {
 public:
  static constexpr std::size_t kMaxBytes = 4 << 20;
  static constexpr std::size_t kMaxBearerTokens = 4096, kMaxJoinTokens = 1024, kMaxTenants = 1024;
  /// Unexpired certificates of one subject, so that nobody fills the records by renewing.
  static constexpr std::size_t kMaxCertificatesOfSubject = 64;
  static constexpr std::size_t kMaxUses = 8192;
  /// Of each name, subject, scope list and creator; and of each certificate and sealed key.
  static constexpr std::size_t kMaxTextBytes = 1024, kMaxPemBytes = 16 << 10;
  static constexpr std::int64_t kKeptExpiredMs = 24LL * 3600 * 1000;
  /// A revoked serial that is not known may be of a certificate made by hand, which lives so long.
  static constexpr std::int64_t kLongestLifeMs = 825LL * 24 * 3600 * 1000;

  /// Errors: ABORTED (STALE_EPOCH), INVALID_ARGUMENT (BAD_AUTHORITIES).
  absl::Status SetAuthorities(const v1::SetAuthorities& change);
  /// Errors: INVALID_ARGUMENT (BAD_TOKEN), ALREADY_EXISTS (TOKEN_EXISTS), RESOURCE_EXHAUSTED
  /// (IDENTITY_FULL).
  absl::Status CreateToken(const v1::CreateToken& change, std::int64_t time);
  /// Errors: NOT_FOUND (TOKEN_UNKNOWN).
  absl::Status EndToken(const v1::EndToken& change);
  /// Uses up the join token that the command names. Changes nothing when it is refused.
  ///
  /// Errors: UNAUTHENTICATED (WRONG_TOKEN, TOKEN_EXPIRED, TOKEN_USED), INVALID_ARGUMENT
  /// (BAD_CERTIFICATE), ALREADY_EXISTS (SERIAL_KNOWN), RESOURCE_EXHAUSTED (IDENTITY_FULL,
  /// TOO_MANY_CERTIFICATES).
  absl::Status IssueCertificate(const v1::IssueCertificate& change, std::int64_t time);
  /// Errors: INVALID_ARGUMENT (BAD_SERIAL), NOT_FOUND (CERTIFICATE_UNKNOWN: the subject has none),
  /// RESOURCE_EXHAUSTED (IDENTITY_FULL).
  absl::Status RevokeCertificate(const v1::RevokeCertificate& change, std::int64_t time);
  /// Errors: INVALID_ARGUMENT (BAD_TENANT), RESOURCE_EXHAUSTED (IDENTITY_FULL).
  absl::Status SetTenant(const v1::Tenant& tenant);
  /// Leaves out what is not a number of something.
  void AddUses(const v1::AddUses& change);

  /// After a restore: nodes may have seen later epochs, and take no older table.
  void Leap(std::uint64_t epochs) { epoch_ += epochs; }

  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  /// The one that signs is the first.
  [[nodiscard]] const std::vector<v1::AuthorityRecord>& authorities() const { return authorities_; }
  [[nodiscard]] v1::AuthorityStatus::Rotation rotation() const { return rotation_; }
  /// By hash.
  [[nodiscard]] const std::map<std::string, v1::BearerToken>& bearer_tokens() const {
    return bearer_tokens_;
  }
  [[nodiscard]] const std::map<std::string, v1::JoinToken>& join_tokens() const {
    return join_tokens_;
  }
  /// By serial number.
  [[nodiscard]] const std::map<std::string, v1::IssuedCertificate>& certificates() const {
    return certificates_;
  }
  [[nodiscard]] const std::map<std::string, v1::Tenant>& tenants() const { return tenants_; }
  /// By hour and tenant.
  [[nodiscard]] const std::map<std::pair<std::int64_t, std::string>, v1::TenantUse>& uses() const {
    return uses_;
  }
  /// What kMaxBytes bounds.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// What nodes judge callers by at `now`.
  [[nodiscard]] v1::IdentityTable Table(std::int64_t now) const;

  [[nodiscard]] v1::IdentityState Save() const;
  void Load(const v1::IdentityState& state);

 private:
  absl::Status MakeRoom(std::size_t bytes, std::int64_t time);
  void DropExpired(std::int64_t before);
  absl::Status CreateBearerToken(const v1::BearerToken& token, std::int64_t time);
  absl::Status CreateJoinToken(const v1::JoinToken& token, std::int64_t time);
  absl::Status RevokeSerial(const std::string& serial, std::int64_t time);
  absl::Status RevokeSubject(const std::string& subject, std::int64_t time);
  // A node with one more, or another, record in one of the maps below.
  template <typename Record>
  void Put(std::map<std::string, Record>& records, const std::string& key, Record record);

  std::uint64_t epoch_ = 0;
  std::vector<v1::AuthorityRecord> authorities_;
  v1::AuthorityStatus::Rotation rotation_ = v1::AuthorityStatus::ROTATION_UNSPECIFIED;
  std::map<std::string, v1::BearerToken> bearer_tokens_;
  std::map<std::string, v1::JoinToken> join_tokens_;
  std::map<std::string, v1::IssuedCertificate> certificates_;
  std::map<std::string, v1::Tenant> tenants_;
  std::map<std::pair<std::int64_t, std::string>, v1::TenantUse> uses_;
  std::size_t bytes_ = 0;  // The serialised size of tokens, certificates and tenants.
};

/// What a certificate's subject is called in commands: "node/NAME" of
/// "onepiece://CLUSTER/node/NAME?role=…". Empty when it is no subject.
std::string ShortSubject(const std::string& uri);

}  // namespace onepiece::nodemanager
