#include "nodemanager/regroup/regroup.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cluster/base/folder.h"
#include "cluster/base/generation.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/seal.h"
#include "nodemanager/replication/corrupt_marker.h"
#include "nodemanager/replication/describe_entry.h"
#include "nodemanager/replication/group_probe.h"
#include "nodemanager/replication/store.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {
namespace {

namespace fs = std::filesystem;

absl::Status Refused(std::string_view reason, std::string_view message) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason, message);
}

absl::Status CannotWrite(const std::string& path) {
  return base::MakeError(absl::StatusCode::kUnavailable, "CANNOT_WRITE",
                         absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

std::string WithoutSlash(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

// What a new group begins with.
struct Beginning {
  std::string cluster_id, name;
  paxos::Members seats;
  paxos::Slot slot;
  std::string state;
  std::string cause, detail;
};

// Makes a data folder whose snapshot is the state after the first entry of the new group, which
// begins the generation. That entry is chosen by definition, as the first one of every group is.
// It is in the snapshot, so nobody of the new group ever holds a state of the generation before. A
// backup of such a state would begin the same generation once more.
absl::StatusOr<NewGroup> MakeFolder(Beginning beginning, const std::string& dir,
                                    base::WallTime now) {
  StateMachine machine;
  ONEPIECE_RETURN_IF_ERROR(machine.Restore(beginning.state));
  v1::Command command;
  command.set_time_unix_ms(base::ToUnixMs(now));
  v1::BeginGeneration& begin = *command.mutable_begin_generation();
  begin.set_generation(base::GenerationOf(machine.epoch()) + 1);
  begin.set_cause(beginning.cause);
  begin.set_detail(beginning.detail);
  ONEPIECE_RETURN_IF_ERROR(ToStatus(machine.Apply(machine.applied_index() + 1, command)));

  const paxos::ReplicaId replica{base::RandomU64()};
  for (paxos::Seat& seat : beginning.seats.seats)
    seat.replica = seat.name == beginning.name ? replica : paxos::ReplicaId{};
  paxos::DurableState durable;
  durable.replica = replica;
  durable.snapshot = {.index = beginning.slot + 1,
                      .members = std::move(beginning.seats),
                      .state = std::make_shared<const std::string>(machine.Serialize())};
  durable.chosen = durable.snapshot.index;

  NewGroup group{.cluster_id = beginning.cluster_id,
                 .name = beginning.name,
                 .group = GroupId{base::RandomU64()},
                 .slot = beginning.slot,
                 .epoch = machine.epoch()};
  ONEPIECE_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, Store::Open(dir));
  ONEPIECE_RETURN_IF_ERROR(store->Create({.cluster_id = group.cluster_id,
                                          .name = group.name,
                                          .replica = replica,
                                          .group = group.group},
                                         durable));
  return group;
}

// Makes the folder under another name first, so that `dir` gets it whole or not at all. Before
// that, `prepare` makes room for it.
absl::StatusOr<NewGroup> PutFolder(Beginning beginning, const std::string& dir, base::WallTime now,
                                   absl::FunctionRef<absl::Status()> prepare) {
  const std::string made = dir + ".regroup";
  std::error_code error;
  fs::remove_all(made, error);  // Of an attempt that was killed.
  absl::StatusOr<NewGroup> group = MakeFolder(std::move(beginning), made, now);
  if (group.ok()) {
    absl::Status status = prepare();
    if (status.ok() && std::rename(made.c_str(), dir.c_str()) != 0) status = CannotWrite(dir);
    if (!status.ok()) group = status;
  }
  if (!group.ok()) {
    fs::remove_all(made, error);
    return group;
  }
  if (!base::SyncFolderOf(dir)) return CannotWrite(dir);
  return group;
}

// The answers of replicas that belong to a group of this cluster.
std::vector<SeatAnswer> FindLiving(const std::vector<paxos::Seat>& seats,
                                   const std::string& cluster_id) {
  std::vector<SeatAnswer> answers = AskSeats(seats);
  std::erase_if(answers, [&](const SeatAnswer& answer) {
    return !answer.status.ok() || answer.status->group() == 0 ||
           answer.status->cluster_id() != cluster_id;
  });
  return answers;
}

std::string Names(const std::vector<SeatAnswer>& answers) {
  std::string names;
  for (const SeatAnswer& answer : answers) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", answer.status->name(), " at ",
                    answer.seat.address);
  }
  return names;
}

absl::Status CheckNobodyLives(const backup::Backup& backup, std::vector<paxos::Seat> seats) {
  for (const v1::Seat& old : backup.header.seats()) {
    const bool known = std::any_of(seats.begin(), seats.end(), [&](const paxos::Seat& seat) {
      return seat.address == old.address();
    });
    if (!known && !old.address().empty())
      seats.push_back({.name = old.name(), .address = old.address()});
  }
  const std::vector<SeatAnswer> living = FindLiving(seats, backup.header.cluster_id());
  if (living.empty()) return absl::OkStatus();
  return Refused("GROUP_ALIVE",
                 absl::StrCat("cluster '", backup.header.cluster_id(), "' lives: ", Names(living),
                              " answers. A backup is for a cluster that is lost; if this one is, "
                              "stop these NodeManagers first"));
}

// Restores the snapshot and applies the log. Returns the members after slot `chosen`.
absl::StatusOr<paxos::Members> Replay(const paxos::DurableState& durable, StateMachine& machine) {
  if (durable.snapshot.state != nullptr && !durable.snapshot.state->empty())
    ONEPIECE_RETURN_IF_ERROR(machine.Restore(*durable.snapshot.state));
  paxos::Members members = durable.snapshot.members;
  for (const paxos::AcceptedEntry& accepted : durable.log) {
    if (accepted.slot <= durable.snapshot.index) continue;
    const paxos::LogEntry& entry = accepted.entry;
    if (entry.kind == paxos::LogEntry::Kind::kMembers && accepted.slot <= durable.chosen)
      members = entry.members;
    if (entry.kind != paxos::LogEntry::Kind::kCommand) continue;
    v1::Command command;
    if (entry.version > kCommandVersion || !command.ParseFromString(*entry.payload)) {
      return Refused("NEWER_VERSION",
                     absl::StrCat("slot ", accepted.slot.value, " is of a newer version (",
                                  entry.version, "): use the program that wrote it"));
    }
    machine.Apply(machine.applied_index() + 1, command, entry.version);
  }
  return members;
}

}  // namespace

absl::StatusOr<NewGroup> RestoreGroup(const backup::Backup& backup, const RestoreOptions& options,
                                      base::WallTime now) {
  const std::string dir = WithoutSlash(options.data_dir);
  std::error_code error;
  if (fs::exists(dir, error) && !(fs::is_directory(dir, error) && fs::is_empty(dir, error))) {
    return Refused("DATA_DIR_NOT_EMPTY",
                   absl::StrCat(dir, " is not empty: move it away, or name another folder"));
  }
  ONEPIECE_RETURN_IF_ERROR(CheckNobodyLives(backup, options.seats));
  const v1::BackupHeader& header = backup.header;
  return PutFolder(
      {.cluster_id = header.cluster_id(),
       .name = options.name,
       .seats = {options.seats},
       .slot = paxos::Slot{header.slot()},
       .state = backup.state,
       .cause = "restore",
       .detail = absl::StrCat(
           "slot ", header.slot(), " of ", header.replica(), ", ",
           absl::FormatTime(absl::RFC3339_sec, absl::FromUnixMillis(header.create_unix_ms()),
                            absl::UTCTimeZone()))},
      dir, now, [] { return absl::OkStatus(); });
}

absl::StatusOr<std::string> OpenSealKey(const v1::BackupHeader& header,
                                        std::string_view passphrase) {
  if (header.wrapped_seal_key().empty()) {
    return Refused("NO_SEAL_KEY",
                   "the backup was made without a passphrase and holds no seal key: make the "
                   "certificates by hand, with `onepiece cert create-node`");
  }
  ONEPIECE_ASSIGN_OR_RETURN(const std::string wrap,
                            identity::WrapKeyOf(passphrase, header.wrapping_salt()));
  absl::StatusOr<std::string> key =
      identity::Unseal(wrap, header.wrapped_seal_key(), identity::kBackupSealContext);
  if (!key.ok() || key->size() != identity::kSealKeyBytes)
    return Refused("WRONG_PASSPHRASE", "the backup was made with another passphrase");
  return key;
}

absl::Status RestoreIdentity(const backup::Backup& backup, const std::string& seal_key,
                             const std::string& name, const std::string& folder,
                             base::WallTime now) {
  StateMachine machine;
  ONEPIECE_RETURN_IF_ERROR(machine.Restore(backup.state));
  const auto& authorities = machine.identity().authorities();
  if (authorities.empty())
    return Refused("NO_AUTHORITY", "the backup is of a cluster that does not know its CA's key");
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Authority authority,
                            identity::OpenAuthority(seal_key, authorities.front().certificate(),
                                                    authorities.front().sealed_key()));
  const identity::PrivateKey key = identity::PrivateKey::Generate();
  ONEPIECE_ASSIGN_OR_RETURN(
      const identity::Certificate certificate,
      authority.Issue(
          identity::SigningRequest::Make(key),
          identity::NodeSubject{
              .cluster = machine.cluster_id(), .id = name, .roles = {identity::Role::kNodeManager}},
          now));
  ONEPIECE_ASSIGN_OR_RETURN(
      const identity::TrustBundle bundle,
      identity::TrustBundle::FromPem(machine.identity().Table(base::ToUnixMs(now)).authorities()));
  ONEPIECE_RETURN_IF_ERROR(identity::WriteSealKeyFile(folder, seal_key));
  return identity::SaveIdentity(folder, identity::kNodeName, key, certificate, bundle);
}

absl::StatusOr<Survivor> ReadSurvivor(const std::string& data_dir) {
  const std::string dir = WithoutSlash(data_dir);
  // Store::Open() would make the database.
  if (std::error_code error; !fs::exists(dir + "/nodemanager.sqlite", error)) {
    return Refused("NOTHING_TO_RECOVER",
                   absl::StrCat(dir, " is not the data folder of a NodeManager"));
  }
  ONEPIECE_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, Store::Open(dir));
  if (!store->identity())
    return Refused("NOTHING_TO_RECOVER", absl::StrCat(dir, " is that of a new replica"));
  const ReplicaIdentity identity = *store->identity();
  // A new group would begin with the state that differs.
  if (const auto corrupt = ReadCorruptMarker(dir, identity.replica))
    return Refused("CORRUPT", absl::StrCat(dir, ": ", *corrupt, ". Use another replica's"));
  const paxos::DurableState durable = store->TakeState();
  StateMachine machine;
  Survivor survivor{.cluster_id = identity.cluster_id,
                    .name = identity.name,
                    .group = identity.group,
                    .chosen = durable.chosen,
                    .last = std::max(durable.chosen, durable.snapshot.index)};
  ONEPIECE_ASSIGN_OR_RETURN(survivor.members, Replay(durable, machine));
  if (machine.cluster_id().empty())
    return Refused("NOTHING_TO_RECOVER", absl::StrCat(dir, " holds no cluster yet"));
  if (!survivor.members.Votes(identity.replica)) {
    return Refused("NO_SEAT", absl::StrCat(dir,
                                           " belongs to a replica without a seat, which may "
                                           "lack what was acknowledged: use a voter's"));
  }
  for (const paxos::AcceptedEntry& accepted : durable.log) {
    if (accepted.slot <= survivor.last) continue;
    survivor.doubtful.push_back(DescribeEntry(accepted));
  }
  if (!durable.log.empty()) survivor.last = std::max(survivor.last, durable.log.back().slot);
  survivor.epoch = machine.epoch();
  survivor.state = machine.Serialize();
  return survivor;
}

absl::StatusOr<Recovered> RecoverGroup(const Survivor& survivor, const RecoverOptions& options,
                                       base::WallTime now) {
  if (options.cluster_id != survivor.cluster_id) {
    return Refused("WRONG_CLUSTER_ID",
                   absl::StrCat("a new group would forget what only the other disks know. If it "
                                "shall begin, say --cluster-id ",
                                survivor.cluster_id));
  }
  std::vector<paxos::Seat> others = survivor.members.seats;
  std::erase_if(others, [&](const paxos::Seat& seat) {
    return seat.name == survivor.name || seat.replica == paxos::ReplicaId{};
  });
  std::vector<SeatAnswer> living = FindLiving(others, survivor.cluster_id);
  std::erase_if(living, [&](const SeatAnswer& answer) {
    return answer.status->group() != survivor.group.value;
  });
  // The survivor itself is one more.
  if (!options.force && living.size() + 1 >= survivor.members.quorum() && !others.empty()) {
    return Refused("MAJORITY_ALIVE",
                   absl::StrCat("with ", Names(living),
                                " and this replica a majority lives: start "
                                "it again instead, and nothing is lost (--force begins a new "
                                "group all the same)"));
  }
  const std::string dir = WithoutSlash(options.data_dir);
  const paxos::Seat* seat = survivor.members.FindName(survivor.name);
  Recovered recovered;
  recovered.kept =
      absl::StrCat(dir, ".before-recover-",
                   absl::FormatTime("%Y%m%dT%H%M%SZ", absl::FromUnixMillis(base::ToUnixMs(now)),
                                    absl::UTCTimeZone()));
  ONEPIECE_ASSIGN_OR_RETURN(
      recovered.group,
      PutFolder({.cluster_id = survivor.cluster_id,
                 .name = survivor.name,
                 .seats = {{*seat}},
                 .slot = survivor.last,
                 .state = survivor.state,
                 .cause = "recover",
                 .detail = absl::StrCat("slot ", survivor.last.value, " of ", survivor.name,
                                        ", known to be chosen up to ", survivor.chosen.value)},
                dir, now, [&] {
                  return std::rename(dir.c_str(), recovered.kept.c_str()) == 0
                             ? absl::OkStatus()
                             : CannotWrite(recovered.kept);
                }));
  return recovered;
}

}  // namespace onepiece::nodemanager
