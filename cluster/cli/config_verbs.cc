#include "cluster/cli/config_verbs.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::cli {
namespace {

// Reads one byte more than a file may have, so that the parser refuses a longer one.
absl::StatusOr<std::string> ReadAtMost(std::istream& stream, const std::string& name) {
  std::string text(config::kMaxConfigBytes + 1, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || (!stream && !stream.eof())) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                           absl::StrCat(name, ": cannot be read: ", std::strerror(errno)),
                           {{"file", name}});
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

}  // namespace

absl::StatusOr<config::ConfigFile> LoadConfigFile(const std::string& path) {
  if (path == "-") {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string text, ReadAtMost(std::cin, "stdin"));
    return config::ParseConfigFile(text, "stdin");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  ONEPIECE_ASSIGN_OR_RETURN(const std::string text, ReadAtMost(file, path));
  return config::ParseConfigFile(text, path);
}

Json AppliedDocument(const v1::ApplyConfigResponse& response, bool dry_run) {
  return {
      {"revision", response.revision()},
      {"dry_run", dry_run},
      {"changed", !dry_run && !response.changes().empty()},
      {"changes", ConfigChangesDocument({response.changes().begin(), response.changes().end()})}};
}

std::string AppliedText(const v1::ApplyConfigResponse& response, bool dry_run) {
  if (response.changes().empty())
    return absl::StrCat("Nothing to change (revision ", response.revision(), ").\n");
  return absl::StrCat(
      ConfigChangesText({response.changes().begin(), response.changes().end()}),
      dry_run ? absl::StrCat("Nothing has been changed (revision ", response.revision(), ").\n")
              : absl::StrCat("The configuration is now revision ", response.revision(), ".\n"));
}

}  // namespace onepiece::cli
