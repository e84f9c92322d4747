// Which fault strikes whom and when: a pure function of a seed.
//
// Rules that hold in every schedule, so that a loss is never truthful:
//   - At most one database suffers at a time. With copies = 2 and both gone, results may be lost.
//     A database counts as suffering until kRecovery after its fault has ended. Faults of the whole
//     machine count as a database's.
//   - Never a majority of the NodeManagers suffers at a time, unless all of them do: then no other
//     fault of a NodeManager strikes.
//   - A process suffers one fault at a time.
// The run adds what a schedule cannot know: it strikes a database only once the databases have
// their copies again (ledger_run.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::ledger {

enum class Role : std::uint8_t { kDatabase, kInstance, kProxy, kNodeManager, kMachine, kGroup };
inline constexpr int kRoles = 6;
/// Returns the role as the cluster spells it: "database". kGroup is all NodeManagers together.
std::string_view NameOf(Role role);

enum class Kind : std::uint8_t {
  kKill,          ///< SIGKILL. The supervisor restarts the process.
  kStop,          ///< SIGSTOP, then SIGCONT.
  kLinkDown,      ///< The cable of the process's host is pulled.
  kDropPackets,   ///< Its host loses what arrives, or what it sends.
  kDiskFull,      ///< The file system of its data directory has no room.
  kShmFull,       ///< /dev/shm has no room.
  kBitFlip,       ///< It is killed, and one bit of its journal or of a spilled result is flipped.
  kClockJump,     ///< Its wall clock jumps, and jumps back.
  kMemoryLimit,   ///< It can allocate 8 MiB more.
  kAllDisksLost,  ///< The NodeManagers' disks are lost, and the group is restored from a backup.
  kMajorityLost,  ///< All of their disks but one are lost, and the group is recovered from it.
  kRotateAuthority,  ///< The cluster changes to a new CA.
  kRevokeBystander,  ///< A token and a certificate that the load does not use are made and revoked.
};

struct FaultKind {
  std::string_view name;  ///< "kill_database"
  Kind kind;
  std::vector<Role> roles;                      ///< Who may suffer.
  std::chrono::milliseconds shortest, longest;  ///< Both 0: it heals by itself.
};
/// All that there are. The order is part of what a seed means.
const std::vector<FaultKind>& FaultKinds();
/// Reads "kill_database,stop_proxy", "all", or "none".
///
/// Errors: INVALID_ARGUMENT (BAD_FAULT).
absl::StatusOr<std::vector<FaultKind>> ParseFaults(std::string_view list);

/// One fault of one process.
struct Injury {
  std::chrono::milliseconds at{};     ///< Since the beginning of the run.
  std::chrono::milliseconds lasts{};  ///< 0: it heals by itself.
  std::string_view fault;             ///< FaultKind::name.
  Kind kind = Kind::kKill;
  Role role = Role::kDatabase;
  int victim = 0;          ///< The number among the processes of the role, from 0.
  std::uint64_t dice = 0;  ///< Decides what the fault leaves open, such as which bit flips.
  friend bool operator==(const Injury&, const Injury&) = default;
};
/// "3.2 s kill_database database 1", for people and for comparing runs.
std::string ToText(const Injury& injury);

/// How many processes of each role there are, by Role.
using Population = std::vector<int>;

/// How long a process suffers from a fault that has ended: it starts again, or catches up.
std::chrono::milliseconds RecoveryOf(Role role);

/// How often faults strike on average. The rules leave fewer.
inline constexpr double kFaultsPerMinute = 22;

/// Returns the injuries in the order in which they begin. Another rate changes nothing but the
/// gaps, as long as the rules allow the same injuries.
std::vector<Injury> MakeSchedule(std::uint64_t seed, std::chrono::milliseconds length,
                                 const std::vector<FaultKind>& faults, const Population& population,
                                 double faults_per_minute = kFaultsPerMinute);

}  // namespace onepiece::ledger
