// `onepiece-regroup`: begins a new group of NodeManagers. `onepiece cluster restore` and `onepiece
// cluster recover` run it.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/clock.h"
#include "cluster/base/generation.h"
#include "cluster/base/status.h"
#include "cluster/contexts/credentials.h"
#include "cluster/identity/seal.h"
#include "cluster/terminal/exit_code.h"
#include "cluster/terminal/output.h"
#include "nodemanager/regroup/regroup.h"
#include "nodemanager/service/seats.h"

namespace onepiece::nodemanager {
namespace {

using terminal::Json;

struct Arguments {
  std::string file, into, name, from, cluster_id, passphrase_file, identity;
  std::vector<std::string> replicas;
  bool force = false;
};

Json GroupDocument(const NewGroup& group) {
  return {{"cluster_id", group.cluster_id}, {"name", group.name},
          {"group", group.group.value},     {"slot", group.slot.value},
          {"epoch", group.epoch},           {"generation", base::GenerationOf(group.epoch)}};
}

std::string GroupText(const NewGroup& group, const std::string& dir) {
  return absl::StrFormat(
      "%s: generation %d of cluster %s begins with the state after slot %d.\n"
      "Start NodeManager %s with this data folder.\n",
      dir, base::GenerationOf(group.epoch), group.cluster_id, group.slot.value, group.name);
}

absl::StatusOr<std::string> ReadSealKey(const backup::Backup& backup, const std::string& file) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string passphrase, identity::ReadPassphraseFile(file));
  return OpenSealKey(backup.header, passphrase);
}

int RunRestore(const terminal::Output& output, const Arguments& arguments) {
  const auto backup = backup::ReadFile(arguments.file);
  if (!backup.ok()) return output.Fail(backup.status());
  std::string name = arguments.name;
  if (name.empty() && arguments.replicas.size() == 1)
    name = arguments.replicas.front().substr(0, arguments.replicas.front().find('='));
  if (name.empty()) {
    return output.Fail(
        terminal::UsageError("--name says which of --replicas this folder will belong to"));
  }
  const auto seats = ParseSeats(arguments.replicas, name);
  if (!seats.ok()) return output.Fail(seats.status());
  // A wrong passphrase is found before anything is made.
  absl::StatusOr<std::string> seal_key{std::string()};
  if (!arguments.passphrase_file.empty())
    seal_key = ReadSealKey(*backup, arguments.passphrase_file);
  if (!seal_key.ok()) return output.Fail(seal_key.status());
  const auto group =
      RestoreGroup(*backup, {.data_dir = arguments.into, .name = name, .seats = *seats},
                   base::SystemClock().WallNow());
  if (!group.ok()) return output.Fail(group.status());
  Json document = GroupDocument(*group);
  document["data_dir"] = arguments.into;
  std::string text = GroupText(*group, arguments.into);
  if (!seal_key->empty()) {
    const std::string folder =
        arguments.identity.empty() ? arguments.into + "/identity" : arguments.identity;
    const absl::Status made =
        RestoreIdentity(*backup, *seal_key, name, folder, base::SystemClock().WallNow());
    if (!made.ok()) return output.Fail(made);
    document["identity"] = folder;
    text += absl::StrCat(folder, ": a certificate for ", name,
                         ", and the key with which it signs others.\n");
  }
  if (seats->size() > 1)
    text += "Then start the other NodeManagers with empty data folders: they join it.\n";
  output.Print(document, text);
  return terminal::kOk;
}

Json SurvivorDocument(const Survivor& survivor) {
  Json document = {{"cluster_id", survivor.cluster_id},
                   {"name", survivor.name},
                   {"chosen", survivor.chosen.value},
                   {"last", survivor.last.value},
                   {"doubtful", Json::array()}};
  for (const auto& line : survivor.doubtful) {
    document["doubtful"].push_back({{"slot", line.slot()},
                                    {"round", line.round()},
                                    {"kind", line.kind()},
                                    {"subject", line.subject()}});
  }
  return document;
}

std::string SurvivorText(const Survivor& survivor) {
  std::string text = absl::StrFormat(
      "The disk of %s knows slots up to %d to be chosen, and has accepted slots up to %d.\n"
      "What the group acknowledged after slot %d is missing.\n",
      survivor.name, survivor.chosen.value, survivor.last.value, survivor.last.value);
  if (survivor.doubtful.empty()) return text;
  text += "These were accepted and perhaps never acknowledged. They are kept:\n";
  for (const auto& line : survivor.doubtful)
    absl::StrAppendFormat(&text, "%9d  %-20s %s\n", line.slot(), line.kind(), line.subject());
  return text;
}

int RunRecover(const terminal::Output& output, const Arguments& arguments) {
  const auto survivor = ReadSurvivor(arguments.from);
  if (!survivor.ok()) return output.Fail(survivor.status());
  if (!output.json) output.Print({}, SurvivorText(*survivor));
  const auto recovered = RecoverGroup(
      *survivor,
      {.data_dir = arguments.from, .cluster_id = arguments.cluster_id, .force = arguments.force},
      base::SystemClock().WallNow());
  if (!recovered.ok()) return output.Fail(recovered.status());
  Json document = GroupDocument(recovered->group);
  document["survivor"] = SurvivorDocument(*survivor);
  document["kept"] = recovered->kept;
  output.Print(document, absl::StrCat(GroupText(recovered->group, arguments.from),
                                      "The earlier folder is ", recovered->kept, ".\n"));
  return terminal::kOk;
}

void AddRestore(CLI::App& app, terminal::Output& output, Arguments& arguments) {
  CLI::App* verb = app.add_subcommand("restore", "Begin a new group with a backup");
  verb->footer(
      "Use it when all replicas are lost. What happened after the backup is forgotten; nodes that "
      "still run come back by themselves.\n\n"
      "  onepiece cluster restore pirates.backup --into /var/lib/onepiece --name nodemanager-1 \\\n"
      "      --replicas nodemanager-1=10.0.0.1:7000,nodemanager-2=10.0.0.2:7000,"
      "nodemanager-3=10.0.0.3:7000");
  verb->add_option("file", arguments.file, "What `onepiece cluster backup` wrote")->required();
  verb->add_option("--into", arguments.into, "The data folder to make; it must be empty")
      ->required();
  verb->add_option("--replicas", arguments.replicas,
                   "name=host:port of every replica of the new group")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--name", arguments.name,
                   "Node id of the replica to which the folder will belong");
  verb->add_option("--passphrase-file", arguments.passphrase_file,
                   "File (mode 0600) with the passphrase of the backup: the replica gets a "
                   "certificate and can sign others");
  verb->add_option("--identity-out", arguments.identity,
                   "Where the certificate goes (default: identity in the data folder)");
  verb->callback([&] { output.action = [&] { return RunRestore(output, arguments); }; });
}

void AddRecover(CLI::App& app, terminal::Output& output, Arguments& arguments) {
  CLI::App* verb =
      app.add_subcommand("recover", "Begin a new group of one with the disk of one replica");
  verb->footer(
      "Use it when a majority of the replicas is lost for good. It says what may be missing. Of "
      "several survivors\ntake the one that knows most slots.\n\n"
      "  onepiece cluster recover --from /var/lib/onepiece --cluster-id pirates");
  verb->add_option("--from", arguments.from, "The data folder of a replica that is stopped")
      ->required();
  verb->add_option("--cluster-id", arguments.cluster_id,
                   "The id of the cluster, so that it is not done by accident");
  verb->add_flag("--force", arguments.force, "Although a majority of the earlier group answers");
  verb->callback([&] { output.action = [&] { return RunRecover(output, arguments); }; });
}

}  // namespace
}  // namespace onepiece::nodemanager

int main(int argc, char** argv) {
  using namespace onepiece;
  CLI::App app{"Begins a new group of NodeManagers with what an earlier one has left",
               "onepiece cluster"};
  app.require_subcommand(1);
  app.fallthrough();
  terminal::Output output;
  nodemanager::Arguments arguments;
  app.add_flag("--json", output.json, "Print one JSON document on stdout and nothing else there");
  // Whether the old group lives, only a caller with an identity is told.
  if (const char* folder = std::getenv("ONEPIECE_IDENTITY"); folder != nullptr && *folder != 0) {
    const auto own = contexts::FindIdentity(folder);
    const absl::Status shown = own.ok() ? contexts::Present(*own) : own.status();
    if (!shown.ok()) return output.Fail(shown);
  }
  nodemanager::AddRestore(app, output, arguments);
  nodemanager::AddRecover(app, output, arguments);
  return terminal::RunCommandLine(app, output, argc, argv);
}
