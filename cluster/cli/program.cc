#include "cluster/cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/base/status.h"
#include "cluster/local/resources.h"

namespace onepiece::cli {
namespace {

/// The global options that take a value.
constexpr std::array<const char*, 5> kClusterOptions = {"--data-dir", "--nodemanager", "--proxy",
                                                        "--identity", "--context"};

/// Returns how many words from `at` on are a global option that names a cluster, including its
/// value.
std::size_t ClusterOptionLength(std::span<const std::string> words, std::size_t at) {
  for (const char* option : kClusterOptions) {
    if (words[at] == option) return std::min<std::size_t>(2, words.size() - at);
    if (words[at].starts_with(absl::StrCat(option, "="))) return 1;
  }
  return 0;
}

const Verb* FindVerb(std::string_view name) {
  const auto verbs = Verbs();
  const auto found = std::ranges::find(verbs, name, &Verb::name);
  return found == verbs.end() ? nullptr : &*found;
}

}  // namespace

std::optional<ProgramCall> FindProgramCall(std::span<const std::string> command_line) {
  std::vector<std::string> words;
  std::string identity;
  bool json = false;
  for (std::size_t at = 0; at < command_line.size();) {
    const std::size_t skipped = ClusterOptionLength(command_line, at);
    if (skipped == 0 && command_line[at] == "--json") json = true;
    if (skipped == 2 && command_line[at] == "--identity") identity = command_line[at + 1];
    if (skipped == 0 && command_line[at] != "--json") words.push_back(command_line[at]);
    at += std::max<std::size_t>(skipped, 1);
  }
  if (words.empty()) return std::nullopt;
  std::size_t named = 1;
  const Verb* verb = FindVerb(words[0]);
  if (words.size() > 1) {
    if (const Verb* inner = FindVerb(absl::StrCat(words[0], " ", words[1])); inner != nullptr) {
      verb = inner;
      named = 2;
    }
  }
  if (verb == nullptr || verb->program == nullptr) return std::nullopt;
  ProgramCall call{.verb = verb,
                   .arguments = {words.begin() + static_cast<std::ptrdiff_t>(named), words.end()}};
  call.identity = identity;
  // What stands behind "--" is no option.
  if (json) call.arguments.insert(std::ranges::find(call.arguments, "--"), "--json");
  return call;
}

int RunProgram(const terminal::Output& output, const ProgramCall& call) {
  std::vector<std::string> words = absl::StrSplit(call.verb->program, ' ');
  const auto path = local::ProgramPath(words.front());
  if (!path.ok()) {
    return output.Fail(
        base::MakeError(absl::StatusCode::kFailedPrecondition, "NOT_INSTALLED",
                        absl::StrCat(base::Message(path.status()), ". ", call.verb->origin)));
  }
  if (!call.identity.empty()) setenv("ONEPIECE_IDENTITY", call.identity.c_str(), 1);
  words.insert(words.end(), call.arguments.begin(), call.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // The process stays the same, so its terminal, its signals and its exit code need no forwarding.
  execv(path->c_str(), argv.data());
  return output.Fail(absl::InternalError(*path + ": " + std::generic_category().message(errno)));
}

}  // namespace onepiece::cli
