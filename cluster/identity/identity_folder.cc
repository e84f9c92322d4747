#include "cluster/identity/identity_folder.h"

#include <sys/stat.h>

#include "cluster/base/status.h"
#include "cluster/identity/secret_files.h"
#include "cluster/identity/signing_request.h"

namespace onepiece::identity {
namespace {

/// Reads a file and parses it, with the file's name before what is wrong inside.
template <typename Result>
absl::StatusOr<Result> ReadAs(const std::string& path, Protection protection,
                              absl::StatusOr<Result> (*parse)(std::string_view)) {
  // These errors name the file.
  ONEPIECE_ASSIGN_OR_RETURN(const std::string bytes, ReadSecretFile(path, protection));
  absl::StatusOr<Result> parsed = parse(bytes);
  if (!parsed.ok()) return base::Annotate(parsed.status(), path);
  return parsed;
}

bool IsThere(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0;
}

}  // namespace

IdentityFiles FilesOf(const std::string& folder, const std::string& name) {
  return {.key = folder + "/" + name + ".key",
          .certificate = folder + "/" + name + ".pem",
          .authorities = folder + "/" + kAuthorityName + ".pem"};
}

absl::Status CheckIdentityName(const std::string& name) {
  if (name != kAuthorityName) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kInvalidArgument, "RESERVED_NAME",
                         "\"ca\" names the files of the CA: choose another name");
}

absl::StatusOr<PrivateKey> ReadKeyFile(const std::string& path) {
  return ReadAs<PrivateKey>(path, Protection::kSecret, &PrivateKey::FromPem);
}

absl::StatusOr<Certificate> ReadCertificateFile(const std::string& path) {
  return ReadAs<Certificate>(path, Protection::kPublic, &Certificate::FromPem);
}

absl::StatusOr<TrustBundle> ReadTrustFile(const std::string& path) {
  return ReadAs<TrustBundle>(path, Protection::kPublic, &TrustBundle::FromPem);
}

absl::StatusOr<Identity> LoadIdentity(const std::string& folder, const std::string& name,
                                      base::WallTime now) {
  ONEPIECE_RETURN_IF_ERROR(CheckSecretFolder(folder));
  const IdentityFiles files = FilesOf(folder, name);
  ONEPIECE_ASSIGN_OR_RETURN(PrivateKey key, ReadKeyFile(files.key));
  ONEPIECE_ASSIGN_OR_RETURN(Certificate certificate, ReadCertificateFile(files.certificate));
  ONEPIECE_ASSIGN_OR_RETURN(TrustBundle authorities, ReadTrustFile(files.authorities));
  if (const absl::Status same = CheckKeyIsOf(key, certificate); !same.ok())
    return base::Annotate(same, files.key);
  // Every identity may be a client.
  absl::StatusOr<Subject> subject = authorities.Verify(certificate, Purpose::kClient, now);
  if (!subject.ok()) return base::Annotate(subject.status(), files.certificate);
  return Identity{.key = std::move(key),
                  .certificate = std::move(certificate),
                  .authorities = std::move(authorities),
                  .subject = *std::move(subject)};
}

absl::Status SaveIdentity(const std::string& folder, const std::string& name, const PrivateKey& key,
                          const Certificate& certificate, const TrustBundle& authorities) {
  ONEPIECE_RETURN_IF_ERROR(CheckIdentityName(name));
  ONEPIECE_RETURN_IF_ERROR(CheckKeyIsOf(key, certificate));
  ONEPIECE_RETURN_IF_ERROR(EnsureSecretFolder(folder));
  const IdentityFiles files = FilesOf(folder, name);
  ONEPIECE_RETURN_IF_ERROR(WriteSecretFile(files.authorities, authorities.ToPem()));
  // A renewal leaves the key's file as it is.
  const absl::StatusOr<PrivateKey> before = ReadKeyFile(files.key);
  if (!before.ok() || before->PublicKeyHash() != key.PublicKeyHash())
    ONEPIECE_RETURN_IF_ERROR(WriteSecretFile(files.key, key.ToPem()));
  return WriteSecretFile(files.certificate, certificate.ToPem());
}

absl::StatusOr<Certificate> MakeIdentity(const std::string& folder, const std::string& name,
                                         const Subject& subject, const Authority& authority,
                                         base::WallTime now, const IssueOptions& options) {
  const PrivateKey key = PrivateKey::Generate();
  ONEPIECE_ASSIGN_OR_RETURN(Certificate certificate,
                            authority.Issue(SigningRequest::Make(key), subject, now, options));
  ONEPIECE_RETURN_IF_ERROR(
      SaveIdentity(folder, name, key, certificate, TrustBundle(authority.certificate())));
  return certificate;
}

absl::StatusOr<Authority> LoadAuthority(const std::string& folder) {
  ONEPIECE_RETURN_IF_ERROR(CheckSecretFolder(folder));
  const IdentityFiles files = FilesOf(folder, kAuthorityName);
  ONEPIECE_ASSIGN_OR_RETURN(const std::string certificate,
                            ReadSecretFile(files.certificate, Protection::kPublic));
  ONEPIECE_ASSIGN_OR_RETURN(const std::string key, ReadSecretFile(files.key));
  absl::StatusOr<Authority> authority = Authority::FromPem(certificate, key);
  if (!authority.ok()) return base::Annotate(authority.status(), folder);
  return authority;
}

absl::Status SaveAuthority(const std::string& folder, const Authority& authority) {
  ONEPIECE_RETURN_IF_ERROR(EnsureSecretFolder(folder));
  const IdentityFiles files = FilesOf(folder, kAuthorityName);
  for (const std::string& path : {files.key, files.certificate}) {
    if (!IsThere(path)) continue;
    return base::MakeError(absl::StatusCode::kAlreadyExists, "CA_EXISTS",
                           path +
                               " is there already: a new CA would make all certificates of "
                               "the old one worthless",
                           {{"path", path}});
  }
  ONEPIECE_RETURN_IF_ERROR(WriteSecretFile(files.key, authority.key().ToPem()));
  return WriteSecretFile(files.certificate, authority.certificate().ToPem());
}

absl::Status SaveAuthorityKey(const std::string& folder, const Authority& authority) {
  ONEPIECE_RETURN_IF_ERROR(EnsureSecretFolder(folder));
  return WriteSecretFile(FilesOf(folder, kAuthorityName).key, authority.key().ToPem());
}

}  // namespace onepiece::identity
