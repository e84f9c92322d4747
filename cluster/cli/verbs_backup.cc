// The verb cluster backup.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cluster/backup/backup_file.h"
#include "cluster/base/generation.h"
#include "cluster/base/ids.h"
#include "cluster/base/shutdown.h"
#include "cluster/base/status.h"
#include "cluster/cli/choose_replica.h"
#include "cluster/cli/verbs.h"
#include "cluster/identity/seal.h"
#include "cluster/terminal/exit_code.h"

namespace onepiece::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kStampFormat[] = "%E4Y%m%dT%H%M%SZ";
// A backup that failed is tried again after this time, or after the period when that is shorter.
constexpr absl::Duration kRetry = absl::Minutes(1);

struct BackupArguments {
  std::string file, replica, every, passphrase_file;
  int keep = 24;
};

/// With a passphrase each backup has a salt of its own.
absl::StatusOr<v1::BackupRequest> RequestOf(const BackupArguments& arguments) {
  v1::BackupRequest request;
  if (arguments.passphrase_file.empty()) return request;
  ONEPIECE_ASSIGN_OR_RETURN(const std::string passphrase,
                            identity::ReadPassphraseFile(arguments.passphrase_file));
  std::string salt(identity::kWrapSaltBytes, '\0');
  base::FillRandom(salt.data(), salt.size());
  ONEPIECE_ASSIGN_OR_RETURN(const std::string key, identity::WrapKeyOf(passphrase, salt));
  request.set_wrapping_key(key);
  request.set_wrapping_salt(salt);
  return request;
}

absl::StatusOr<backup::Written> MakeBackup(client::Client& client, const BackupArguments& arguments,
                                           const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::BackupRequest request, RequestOf(arguments));
  ONEPIECE_ASSIGN_OR_RETURN(const client::ReplicaAnswer asked,
                            ChooseReplica(client, arguments.replica));
  return backup::WriteFile(path, [&](backup::Sink sink) {
    return client.Backup(asked.address, request,
                         [&](std::string_view chunk) { return sink(chunk); });
  });
}

Json BackupDocument(const backup::Written& written) {
  const v1::BackupHeader& header = written.header;
  return {{"file", written.path},
          {"cluster_id", header.cluster_id()},
          {"replica", header.replica()},
          {"slot", header.slot()},
          {"epoch", header.epoch()},
          {"generation", base::GenerationOf(header.epoch())},
          {"create_unix_ms", header.create_unix_ms()},
          {"has_seal_key", !header.wrapped_seal_key().empty()},
          {"bytes", written.bytes},
          {"sha256", written.sha256}};
}

std::string BackupText(const backup::Written& written) {
  const v1::BackupHeader& header = written.header;
  return absl::StrFormat(
      "%s: cluster %s after slot %d of %s (epoch %s), %s, sha256 %s\n", written.path,
      header.cluster_id(), header.slot(), header.replica(), base::FormatEpoch(header.epoch()),
      terminal::HumanBytes(static_cast<std::int64_t>(written.bytes)), written.sha256);
}

/// True for FILE.YYYYMMDDTHHMMSSZ.
bool IsStamped(const std::string& name, const std::string& file) {
  if (!name.starts_with(file + ".")) return false;
  absl::Time time;
  std::string error;
  const std::string stamp = name.substr(file.size() + 1);
  return absl::ParseTime(kStampFormat, stamp, &time, &error) &&
         absl::FormatTime(kStampFormat, time, absl::UTCTimeZone()) == stamp;
}

/// Removes all but the newest `keep` backups that RunRepeatedly() has made under this name.
void RemoveOldest(const std::string& file, int keep) {
  const fs::path path(file);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> stamped;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (IsStamped(name, path.filename().string())) stamped.push_back(name);
  }
  std::ranges::sort(stamped);  // The stamps sort by time.
  const std::size_t kept = std::min<std::size_t>(stamped.size(), static_cast<std::size_t>(keep));
  stamped.resize(stamped.size() - kept);
  for (const std::string& name : stamped) fs::remove(folder / name, error);
}

int RunOnce(const Context& context, const BackupArguments& arguments) {
  const auto client = context.MakeManagerClient();
  if (!client.ok()) return context.Fail(client.status());
  const auto written = MakeBackup(**client, arguments, arguments.file);
  if (!written.ok()) return context.Fail(written.status());
  context.Print(BackupDocument(*written), BackupText(*written));
  return terminal::kOk;
}

/// A failure is told and tried again: the cluster may just be without a leader.
int RunRepeatedly(const Context& context, const BackupArguments& arguments, absl::Duration every) {
  base::ShutdownSignals signals;  // Must come before the client's threads start.
  const auto client = context.MakeManagerClient();
  if (!client.ok()) return context.Fail(client.status());
  for (;;) {
    const std::string stamp = absl::FormatTime(kStampFormat, absl::Now(), absl::UTCTimeZone());
    const auto written = MakeBackup(**client, arguments, absl::StrCat(arguments.file, ".", stamp));
    if (written.ok()) {
      std::cout << (context.json ? BackupDocument(*written).dump(-1, ' ', false,
                                                                 Json::error_handler_t::replace) +
                                       "\n"
                                 : BackupText(*written))
                << std::flush;
      RemoveOldest(arguments.file, arguments.keep);
    } else {
      std::cerr << "onepiece: " << base::Message(written.status()) << std::endl;
    }
    const absl::Duration pause = written.ok() ? every : std::min(every, kRetry);
    if (signals.WaitFor(absl::ToChronoNanoseconds(pause))) return terminal::kOk;
  }
}

int RunBackup(const Context& context, const BackupArguments& arguments) {
  if (arguments.every.empty()) return RunOnce(context, arguments);
  absl::Duration every;
  if (!absl::ParseDuration(arguments.every, &every) || every < absl::Seconds(1) ||
      every > absl::Hours(24 * 366)) {
    return context.Fail(terminal::UsageError(absl::StrCat(
        "--every ", arguments.every, ": give a period of at least 1s, such as 30m or 24h")));
  }
  return RunRepeatedly(context, arguments, every);
}

}  // namespace

void DefineClusterBackup(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<BackupArguments>();
  verb.footer(
      "The file holds the state of the NodeManagers, with the cluster's secret: keep it as you "
      "keep keys.\n`onepiece cluster restore` begins a new group with it.");
  verb.add_option("file", arguments->file, "Where to write it")->required();
  verb.add_option("--replica", arguments->replica,
                  "Node id of the replica to ask (default: the leader)");
  verb.add_option(
      "--passphrase-file", arguments->passphrase_file,
      "File (mode 0600) with a passphrase: the backup then holds the cluster's seal key "
      "behind it, and who restores it needs no other NodeManager's identity");
  CLI::Option* every = verb.add_option(
      "--every", arguments->every,
      "Go on until SIGTERM, and write FILE.YYYYMMDDTHHMMSSZ (UTC) once in this time (30m, 24h)");
  verb.add_option("--keep", arguments->keep, "With --every: how many of these files to keep")
      ->needs(every)
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  verb.callback([&context, arguments] {
    context.action = [&context, arguments] { return RunBackup(context, *arguments); };
  });
}

}  // namespace onepiece::cli
