// Begins a new group of NodeManagers with what an earlier one has left: a backup, or the disk of
// one replica (docs/operation.md, "When everything is lost").
//
// The new group has a random id of its own, so replicas of the earlier one cannot talk to it. Its
// first entry begins a new generation, and nobody is served before that is applied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/backup/backup_file.h"
#include "cluster/base/clock.h"
#include "nodemanager/paxos/types.h"
#include "nodemanager/replication/group_id.h"

namespace onepiece::nodemanager {

/// The group that began, with one replica.
struct NewGroup {
  std::string cluster_id, name;
  GroupId group;
  /// The last slot of the earlier group that its state holds. The new group goes on counting.
  paxos::Slot slot;
  std::uint64_t epoch = 0;  ///< The first of the generation.
};

struct RestoreOptions {
  std::string data_dir;            ///< An empty folder, or none yet.
  std::string name;                ///< The replica to which the folder will belong.
  std::vector<paxos::Seat> seats;  ///< Of the new group. All but that of `name` begin vacant.
};

/// Makes the data folder of the first replica of a new group that begins with a backup.
///
/// Blocking: asks all seats for one second at most, and waits for the disk.
/// Errors: FAILED_PRECONDITION (DATA_DIR_NOT_EMPTY; GROUP_ALIVE: a seat of the earlier or of the
/// new group answers that it belongs to the cluster; NEWER_VERSION: the backup needs a newer
/// program), DATA_LOSS (BAD_SNAPSHOT), and those of the disk.
absl::StatusOr<NewGroup> RestoreGroup(const backup::Backup& backup, const RestoreOptions& options,
                                      base::WallTime now);

/// Opens the seal key that a backup holds behind a passphrase.
///
/// Blocking: computes for about 0.1 s.
/// Errors: FAILED_PRECONDITION (NO_SEAL_KEY: the backup was made without a passphrase;
/// WRONG_PASSPHRASE), INVALID_ARGUMENT (EMPTY_PASSPHRASE).
absl::StatusOr<std::string> OpenSealKey(const v1::BackupHeader& header,
                                        std::string_view passphrase);

/// Makes the identity folder of the first replica of a group that begins with a backup: the seal
/// key, and a certificate that the backup's own CA signs. With it the replica can sign for all
/// others.
///
/// Blocking: waits for the disk.
/// Errors: FAILED_PRECONDITION (BAD_SEAL: the seal key is of another cluster; NO_AUTHORITY: the
/// backup is of a cluster without a CA), DATA_LOSS (BAD_SNAPSHOT), and those of
/// identity::SaveIdentity() and identity::WriteSealKeyFile().
absl::Status RestoreIdentity(const backup::Backup& backup, const std::string& seal_key,
                             const std::string& name, const std::string& folder,
                             base::WallTime now);

/// What the disk of one replica holds of its group.
struct Survivor {
  std::string cluster_id, name;
  GroupId group;
  paxos::Members members;
  /// The state below is that after slot `last`. Slots up to `chosen` are known to be chosen.
  paxos::Slot chosen, last;
  /// The entries after `chosen`. Each may have been acknowledged or not.
  std::vector<v1::ListLogResponse::Line> doubtful;
  std::uint64_t epoch = 0;
  std::string state;
};

/// Reads the data folder of a replica that is stopped, and applies every entry that it has
/// accepted. Without the other disks nobody can tell which of the doubtful ones were acknowledged,
/// so all of them are kept.
///
/// Blocking: reads the disk.
/// Errors: those of Store::Open(), FAILED_PRECONDITION (NOTHING_TO_RECOVER: the folder holds no
/// state; NO_SEAT: the replica had no seat; NEWER_VERSION).
absl::StatusOr<Survivor> ReadSurvivor(const std::string& data_dir);

struct RecoverOptions {
  std::string data_dir;    ///< Of the survivor.
  std::string cluster_id;  ///< As a person typed it.
  bool force = false;      ///< Although a majority answers.
};

/// What RecoverGroup() has made.
struct Recovered {
  NewGroup group;
  std::string kept;  ///< Where the earlier data folder is now.
};

/// Puts the data folder of a new group of one replica in the place of the survivor's, which is kept
/// beside it under another name.
///
/// Blocking: asks the other seats for one second at most, and waits for the disk.
/// Errors: FAILED_PRECONDITION (WRONG_CLUSTER_ID; MAJORITY_ALIVE, unless forced: the group can go
/// on by itself), and those of the disk.
absl::StatusOr<Recovered> RecoverGroup(const Survivor& survivor, const RecoverOptions& options,
                                       base::WallTime now);

}  // namespace onepiece::nodemanager
