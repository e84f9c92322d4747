// The verb `completion` prints a shell script made from the command line's own verbs and options.
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/cli/verbs.h"

namespace onepiece::cli {
namespace {

/// Adds the case of the script for `verb`, with the words that may follow `path`, then the cases of
/// its own verbs.
void AddCases(const CLI::App& verb, const std::string& path, std::string& script) {
  std::vector<std::string> words;
  const auto visible = [](const CLI::App* sub) { return !sub->get_group().empty(); };
  for (const CLI::App* sub : verb.get_subcommands(visible)) words.push_back(sub->get_name());
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  absl::StrAppend(&script, "    \"", path, "\") words=\"", absl::StrJoin(words, " "), "\" ;;\n");
  for (const CLI::App* sub : verb.get_subcommands(visible))
    AddCases(*sub, path.empty() ? sub->get_name() : absl::StrCat(path, " ", sub->get_name()),
             script);
}

std::string BashScript(const CLI::App& app) {
  std::string script =
      "# Completion of `onepiece` for bash:  source <(onepiece completion)\n"
      "_onepiece() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} path= words= at\n"
      "  for ((at = 1; at < COMP_CWORD; at++)); do\n"
      "    case ${COMP_WORDS[at]} in -*) break ;; esac\n"
      "    path+=${path:+ }${COMP_WORDS[at]}\n"
      "  done\n"
      "  case $path in\n";
  AddCases(app, "", script);
  // After a positional argument only file names are useful, and -o default completes those.
  absl::StrAppend(&script,
                  "  esac\n"
                  "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                  "}\n"
                  "complete -o default -F _onepiece onepiece\n");
  return script;
}

}  // namespace

void DefineCompletion(CLI::App& verb, Context& context) {
  verb.callback([&verb, &context] {
    context.action = [&verb, &context] {
      const std::string script = BashScript(*verb.get_parent());
      context.Print({{"shell", "bash"}, {"script", script}}, script);
      return terminal::kOk;
    };
  });
}

}  // namespace onepiece::cli
