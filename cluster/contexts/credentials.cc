#include "cluster/contexts/credentials.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/secret_files.h"
#include "cluster/identity/token.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/tls.h"

namespace onepiece::contexts {

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string text, identity::ReadSecretFile(path));
  const auto token =
      identity::BearerToken::Parse(base::View(absl::StripAsciiWhitespace(base::AbslView(text))));
  if (!token.ok()) return base::Annotate(token.status(), path);
  return token->Format();
}

absl::Status KeepToken(const std::string& path, std::string_view text) {
  ONEPIECE_ASSIGN_OR_RETURN(
      const identity::BearerToken token,
      identity::BearerToken::Parse(base::View(absl::StripAsciiWhitespace(base::AbslView(text)))));
  ONEPIECE_RETURN_IF_ERROR(
      identity::EnsureSecretFolder(std::filesystem::path(path).parent_path().string()));
  return identity::WriteSecretFile(path, token.Format() + "\n");
}

absl::StatusOr<Credentials> FindIdentity(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::filesystem::path& path = at->path();
    if (path.extension() != ".pem" || path.stem() == identity::kAuthorityName) continue;
    names.push_back(path.stem().string());
  }
  if (std::ranges::find(names, identity::kAdminName) != names.end())
    return Credentials{.folder = folder, .name = identity::kAdminName};
  if (names.size() == 1) return Credentials{.folder = folder, .name = names.front()};
  std::ranges::sort(names);
  if (names.empty()) {
    return base::MakeError(
        absl::StatusCode::kNotFound, "NO_IDENTITY",
        absl::StrCat("there is no identity (NAME.pem, NAME.key, ca.pem) in ", folder));
  }
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, "SEVERAL_IDENTITIES",
      absl::StrCat(folder, " has several identities: ", absl::StrJoin(names, ", ")));
}

absl::Status Present(const Credentials& credentials) {
  rpc::RequireTls13();
  const base::Clock& clock = base::SystemClock();
  if (!credentials.folder.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(
        auto made,
        rpc::MakeChannelCredentials(
            {.folder = credentials.folder, .name = credentials.name, .roles = {}}, clock));
    rpc::UseCredentials(std::move(made));
    return absl::OkStatus();
  }
  ONEPIECE_ASSIGN_OR_RETURN(const std::string token, ReadToken(credentials.token_file));
  // Whose nodes they are, the CAs say: a cluster has CAs of its own.
  ONEPIECE_ASSIGN_OR_RETURN(
      auto made, rpc::MakeTokenCredentials(credentials.authorities, token, /*cluster=*/"", clock));
  rpc::UseCredentials(std::move(made));
  return absl::OkStatus();
}

}  // namespace onepiece::contexts
