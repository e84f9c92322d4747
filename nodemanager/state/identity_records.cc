#include "nodemanager/state/identity_records.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/subject.h"
#include "cluster/identity/token.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kMaxAuthorities = 2;
constexpr std::size_t kMaxSerialDigits = 64;

absl::Status BadInput(const char* reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason, message);
}

absl::Status IdentityFull(const std::string& what) {
  return base::MakeError(absl::StatusCode::kResourceExhausted, "IDENTITY_FULL",
                         absl::StrCat("the cluster keeps no more ", what,
                                      ": revoke tokens that nobody uses, or wait until some end"));
}

absl::Status TokenRefused(const char* reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kUnauthenticated, reason, message);
}

bool FitsText(const std::string& text) { return text.size() <= IdentityRecords::kMaxTextBytes; }

bool IsSerial(const std::string& serial) {
  return !serial.empty() && serial.size() <= kMaxSerialDigits &&
         std::ranges::all_of(
             serial, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// A sum that stays a number whatever is added.
std::int64_t Plus(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return b > kMost - a ? kMost : a + b;
}

bool IsUse(const v1::TenantUse& use) {
  return !use.tenant().empty() && FitsText(use.tenant()) && use.hour_unix_ms() >= 0 &&
         use.jobs() >= 0 && use.bytes() >= 0 && std::isfinite(use.worker_seconds()) &&
         use.worker_seconds() >= 0;
}

// Whether the tenant may be forgotten when room is needed: an entry without a quota limits nothing.
bool SaysNothing(const v1::Tenant& tenant) { return tenant.quota().ByteSizeLong() == 0; }

absl::Status CheckAuthorities(const v1::SetAuthorities& change) {
  const auto count = static_cast<std::size_t>(change.authorities_size());
  const bool alone = change.rotation() == v1::AuthorityStatus::NONE;
  const bool rotates = change.rotation() == v1::AuthorityStatus::INTRODUCED ||
                       change.rotation() == v1::AuthorityStatus::OVERLAP;
  if (!(alone && count == 1) && !(rotates && count == kMaxAuthorities))
    return BadInput("BAD_AUTHORITIES", "one CA, or two during a rotation");
  for (const v1::AuthorityRecord& authority : change.authorities()) {
    if (authority.certificate().empty() || authority.sealed_key().empty() ||
        authority.certificate().size() > IdentityRecords::kMaxPemBytes ||
        authority.sealed_key().size() > IdentityRecords::kMaxPemBytes)
      return BadInput("BAD_AUTHORITIES", "a CA without a certificate or key, or too large");
  }
  return absl::OkStatus();
}

}  // namespace

std::string ShortSubject(const std::string& uri) {
  const std::string_view scheme = identity::kUriScheme;
  if (!uri.starts_with(scheme)) return "";
  const std::size_t slash = uri.find('/', scheme.size());
  if (slash == std::string::npos) return "";
  return uri.substr(slash + 1, uri.find('?', slash) - slash - 1);
}

absl::Status IdentityRecords::SetAuthorities(const v1::SetAuthorities& change) {
  if (change.base_epoch() != epoch_) {
    return base::MakeError(absl::StatusCode::kAborted, "STALE_EPOCH",
                           absl::StrCat("made for identity epoch ", change.base_epoch(),
                                        ", now it is ", epoch_, ": try again"));
  }
  ONEPIECE_RETURN_IF_ERROR(CheckAuthorities(change));
  authorities_.assign(change.authorities().begin(), change.authorities().end());
  rotation_ = change.rotation();
  ++epoch_;
  return absl::OkStatus();
}

template <typename Record>
void IdentityRecords::Put(std::map<std::string, Record>& records, const std::string& key,
                          Record record) {
  const auto [place, is_new] = records.try_emplace(key);
  if (!is_new) bytes_ -= place->second.ByteSizeLong();
  place->second = std::move(record);
  bytes_ += place->second.ByteSizeLong();
}

void IdentityRecords::DropExpired(std::int64_t before) {
  const auto drop = [this](auto& records, auto ended) {
    std::erase_if(records, [&](const auto& entry) {
      if (!ended(entry.second)) return false;
      bytes_ -= entry.second.ByteSizeLong();
      return true;
    });
  };
  const auto token_ended = [&](const auto& token) { return token.expires_unix_ms() <= before; };
  drop(bearer_tokens_, token_ended);
  drop(join_tokens_, token_ended);
  drop(certificates_, [&](const v1::IssuedCertificate& certificate) {
    return certificate.not_after_unix_ms() <= before;
  });
}

absl::Status IdentityRecords::MakeRoom(std::size_t bytes, std::int64_t time) {
  DropExpired(time - kKeptExpiredMs);
  if (bytes_ + bytes <= kMaxBytes) return absl::OkStatus();
  DropExpired(time);
  return bytes_ + bytes <= kMaxBytes ? absl::OkStatus() : IdentityFull("tokens and certificates");
}

absl::Status IdentityRecords::CreateToken(const v1::CreateToken& change, std::int64_t time) {
  if (change.has_bearer()) return CreateBearerToken(change.bearer(), time);
  if (change.has_join()) return CreateJoinToken(change.join(), time);
  return BadInput("BAD_TOKEN", "neither a bearer token nor a join token");
}

absl::Status IdentityRecords::CreateBearerToken(const v1::BearerToken& token, std::int64_t time) {
  if (token.secret_hash().size() != identity::kHashBytes || token.expires_unix_ms() <= time ||
      !FitsText(token.name()) || !FitsText(token.tenant()) || !FitsText(token.scopes()) ||
      !FitsText(token.app_id()) || !FitsText(token.creator()))
    return BadInput("BAD_TOKEN", "no hash, an end in the past, or a text that is too long");
  if (bearer_tokens_.contains(token.secret_hash())) {
    return base::MakeError(absl::StatusCode::kAlreadyExists, "TOKEN_EXISTS",
                           "there is this token already");
  }
  ONEPIECE_RETURN_IF_ERROR(MakeRoom(token.ByteSizeLong(), time));
  if (bearer_tokens_.size() >= kMaxBearerTokens) DropExpired(time);
  if (bearer_tokens_.size() >= kMaxBearerTokens) return IdentityFull("bearer tokens");
  Put(bearer_tokens_, token.secret_hash(), token);
  ++epoch_;
  return absl::OkStatus();
}

absl::Status IdentityRecords::CreateJoinToken(const v1::JoinToken& token, std::int64_t time) {
  if (token.secret_hash().size() != identity::kHashBytes || token.expires_unix_ms() <= time ||
      token.uses_left() == 0 || !FitsText(token.roles()) || !FitsText(token.creator()))
    return BadInput("BAD_TOKEN", "no hash, no use, an end in the past, or a text that is too long");
  if (join_tokens_.contains(token.secret_hash())) {
    return base::MakeError(absl::StatusCode::kAlreadyExists, "TOKEN_EXISTS",
                           "there is this token already");
  }
  ONEPIECE_RETURN_IF_ERROR(MakeRoom(token.ByteSizeLong(), time));
  if (join_tokens_.size() >= kMaxJoinTokens) DropExpired(time);
  if (join_tokens_.size() >= kMaxJoinTokens) return IdentityFull("join tokens");
  Put(join_tokens_, token.secret_hash(), token);
  return absl::OkStatus();
}

absl::Status IdentityRecords::EndToken(const v1::EndToken& change) {
  const auto end = [&](auto& tokens) {
    const auto found = std::ranges::find_if(
        tokens, [&](const auto& token) { return identity::TokenId(token.first) == change.id(); });
    if (found == tokens.end()) return false;
    bytes_ -= found->second.ByteSizeLong();
    tokens.erase(found);
    return true;
  };
  if (end(bearer_tokens_)) {
    ++epoch_;
    return absl::OkStatus();
  }
  if (end(join_tokens_)) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kNotFound, "TOKEN_UNKNOWN",
                         absl::StrCat("there is no token ", change.id(), ", or none any more"));
}

absl::Status IdentityRecords::IssueCertificate(const v1::IssueCertificate& change,
                                               std::int64_t time) {
  const v1::IssuedCertificate& made = change.certificate();
  v1::JoinToken used;
  if (!change.join_token().empty()) {
    const auto token = join_tokens_.find(change.join_token());
    if (token == join_tokens_.end())
      return TokenRefused("WRONG_TOKEN", "the cluster knows no such token");
    used = token->second;
    if (used.expires_unix_ms() <= time)
      return TokenRefused("TOKEN_EXPIRED", "the token has expired: ask for a new one");
    if (used.uses_left() == 0)
      return TokenRefused("TOKEN_USED", "the token was used before: ask for a new one");
    used.set_uses_left(used.uses_left() - 1);
  }
  if (!IsSerial(made.serial()) || ShortSubject(made.subject()).empty() ||
      made.not_after_unix_ms() <= time || !FitsText(made.subject()) || !FitsText(made.requester()))
    return BadInput("BAD_CERTIFICATE", "no serial number, no subject, or an end in the past");
  if (certificates_.contains(made.serial())) {
    return base::MakeError(absl::StatusCode::kAlreadyExists, "SERIAL_KNOWN",
                           "there is a certificate with this serial number already");
  }
  ONEPIECE_RETURN_IF_ERROR(MakeRoom(made.ByteSizeLong(), time));
  const auto of_subject = std::ranges::count_if(certificates_, [&](const auto& known) {
    return known.second.subject() == made.subject() && known.second.not_after_unix_ms() > time;
  });
  if (static_cast<std::size_t>(of_subject) >= kMaxCertificatesOfSubject) {
    return base::MakeError(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_CERTIFICATES",
        absl::StrCat(ShortSubject(made.subject()), " has ", of_subject,
                     " certificates that have not expired: why does it need new ones?"));
  }
  Put(certificates_, made.serial(), made);
  if (!change.join_token().empty()) Put(join_tokens_, change.join_token(), used);
  return absl::OkStatus();
}

absl::Status IdentityRecords::RevokeCertificate(const v1::RevokeCertificate& change,
                                                std::int64_t time) {
  return change.serial().empty() ? RevokeSubject(change.subject(), time)
                                 : RevokeSerial(change.serial(), time);
}

absl::Status IdentityRecords::RevokeSerial(const std::string& serial, std::int64_t time) {
  if (!IsSerial(serial))
    return BadInput("BAD_SERIAL", "a serial number is lower-case hexadecimal digits");
  v1::IssuedCertificate revoked;
  if (const auto known = certificates_.find(serial); known != certificates_.end()) {
    if (known->second.revoked()) return absl::OkStatus();
    revoked = known->second;
  } else {
    revoked.set_serial(serial);
    revoked.set_not_after_unix_ms(time + kLongestLifeMs);
    ONEPIECE_RETURN_IF_ERROR(MakeRoom(revoked.ByteSizeLong() + 2, time));
  }
  revoked.set_revoked(true);
  Put(certificates_, serial, revoked);
  ++epoch_;
  return absl::OkStatus();
}

absl::Status IdentityRecords::RevokeSubject(const std::string& subject, std::int64_t time) {
  bool any = false, changed = false;
  for (auto& [serial, known] : certificates_) {
    if (subject.empty() || ShortSubject(known.subject()) != subject ||
        known.not_after_unix_ms() <= time)
      continue;
    any = true;
    if (known.revoked()) continue;
    bytes_ -= known.ByteSizeLong();
    known.set_revoked(true);
    bytes_ += known.ByteSizeLong();
    changed = true;
  }
  if (changed) ++epoch_;
  if (any) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kNotFound, "CERTIFICATE_UNKNOWN",
      absl::StrCat("the cluster has issued no certificate to '", subject,
                   "' that is still valid; one that was made by hand is revoked by its serial"));
}

absl::Status IdentityRecords::SetTenant(const v1::Tenant& tenant) {
  if (tenant.name().empty() || !FitsText(tenant.name()))
    return BadInput("BAD_TENANT", "a tenant has a name");
  const auto known = tenants_.find(tenant.name());
  if (known == tenants_.end() && tenants_.size() >= kMaxTenants) {
    const auto idle =
        std::ranges::find_if(tenants_, [](const auto& entry) { return SaysNothing(entry.second); });
    if (idle == tenants_.end()) return IdentityFull("tenants");
    bytes_ -= idle->second.ByteSizeLong();
    tenants_.erase(idle);
  }
  Put(tenants_, tenant.name(), tenant);
  ++epoch_;
  return absl::OkStatus();
}

void IdentityRecords::AddUses(const v1::AddUses& change) {
  for (const v1::TenantUse& use : change.uses()) {
    if (!IsUse(use)) continue;
    v1::TenantUse& sum = uses_[{use.hour_unix_ms(), use.tenant()}];
    sum.set_tenant(use.tenant());
    sum.set_hour_unix_ms(use.hour_unix_ms());
    sum.set_jobs(Plus(sum.jobs(), use.jobs()));
    sum.set_bytes(Plus(sum.bytes(), use.bytes()));
    const double seconds = sum.worker_seconds() + use.worker_seconds();
    if (std::isfinite(seconds)) sum.set_worker_seconds(seconds);
  }
  while (uses_.size() > kMaxUses) uses_.erase(uses_.begin());
}

v1::IdentityTable IdentityRecords::Table(std::int64_t now) const {
  v1::IdentityTable table;
  table.set_epoch(epoch_);
  for (const v1::AuthorityRecord& authority : authorities_) {
    std::string& bundle = *table.mutable_authorities();
    bundle += authority.certificate();
    if (!bundle.ends_with('\n')) bundle += '\n';
  }
  if (!authorities_.empty()) {
    const auto signing = identity::Certificate::FromPem(authorities_.front().certificate());
    if (signing.ok()) table.set_signing_authority(signing->Fingerprint());
  }
  for (const auto& [hash, token] : bearer_tokens_)
    if (token.expires_unix_ms() > now) *table.add_bearer_tokens() = token;
  for (const auto& [serial, certificate] : certificates_)
    if (certificate.revoked() && certificate.not_after_unix_ms() > now)
      table.add_revoked_serials(serial);
  for (const auto& [name, tenant] : tenants_) *table.add_tenants() = tenant;
  return table;
}

v1::IdentityState IdentityRecords::Save() const {
  v1::IdentityState state;
  state.set_epoch(epoch_);
  state.mutable_authorities()->Add(authorities_.begin(), authorities_.end());
  state.set_rotation(rotation_);
  for (const auto& [hash, token] : bearer_tokens_) *state.add_bearer_tokens() = token;
  for (const auto& [hash, token] : join_tokens_) *state.add_join_tokens() = token;
  for (const auto& [serial, known] : certificates_) *state.add_certificates() = known;
  for (const auto& [name, tenant] : tenants_) *state.add_tenants() = tenant;
  for (const auto& [key, use] : uses_) *state.add_uses() = use;
  return state;
}

void IdentityRecords::Load(const v1::IdentityState& state) {
  *this = IdentityRecords();
  epoch_ = state.epoch();
  authorities_.assign(state.authorities().begin(), state.authorities().end());
  rotation_ = state.rotation();
  for (const v1::BearerToken& token : state.bearer_tokens())
    Put(bearer_tokens_, token.secret_hash(), token);
  for (const v1::JoinToken& token : state.join_tokens())
    Put(join_tokens_, token.secret_hash(), token);
  for (const v1::IssuedCertificate& known : state.certificates())
    Put(certificates_, known.serial(), known);
  for (const v1::Tenant& tenant : state.tenants()) Put(tenants_, tenant.name(), tenant);
  for (const v1::TenantUse& use : state.uses()) uses_[{use.hour_unix_ms(), use.tenant()}] = use;
}

}  // namespace onepiece::nodemanager
