#include "tests/chaos/ledger_faults.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cluster/base/status.h"
#include "tests/chaos/ledger_disaster.h"
#include "tests/chaos/ledger_lifecycle.h"

namespace onepiece::ledger {
namespace {

namespace fs = std::filesystem;
using local::ProcessId;

constexpr rlim_t kMemoryLeft = rlim_t{8} << 20;
constexpr auto kGone = std::chrono::seconds(10);
/// Jumps of a wall clock in seconds: NTP's steps, a lost hour, a wrong day, a wrong year.
constexpr std::int64_t kJumps[] = {-31'536'000, -86'400, -3'600, -10,
                                   10,          3'600,   86'400, 31'536'000};

absl::Status CannotDo(const std::string& what) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "NO_FAULT", what);
}

absl::StatusOr<ProcessId> Running(const Cluster& cluster, const Injury& injury) {
  const local::ProcessRecord record = cluster.Find(injury.role, injury.victim);
  if (record.process.pid > 0 && local::IsRunning(record.process)) return record.process;
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_RUNNING",
                         record.node_id + " does not run");
}

absl::Status Signal(const ProcessId& process, int signal) {
  if (::kill(process.pid, signal) == 0) return absl::OkStatus();
  return CannotDo(std::string("kill: ") + std::strerror(errno));
}

absl::Status Said(const std::string& error) {
  return error.empty() ? absl::OkStatus() : CannotDo(error);
}

class KillFault final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) override {
    ONEPIECE_ASSIGN_OR_RETURN(const ProcessId process, Running(cluster, injury));
    return Signal(process, SIGKILL);
  }
  absl::Status Heal(Cluster&, const Injury&) override { return absl::OkStatus(); }
};

class StopFault final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) override {
    ONEPIECE_ASSIGN_OR_RETURN(process_, Running(cluster, injury));
    return Signal(process_, SIGSTOP);
  }
  absl::Status Heal(Cluster&, const Injury&) override {
    // The number may be another process's, if this one is gone.
    return local::IsRunning(process_) ? Signal(process_, SIGCONT) : absl::OkStatus();
  }

 private:
  ProcessId process_{};
};

class LinkDown final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) override {
    return Said(cluster.hosts().SetLink(cluster.HostOf(injury.role, injury.victim), false));
  }
  absl::Status Heal(Cluster& cluster, const Injury& injury) override {
    return Said(cluster.hosts().SetLink(cluster.HostOf(injury.role, injury.victim), true));
  }
};

class DropPackets final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) override {
    return Said(cluster.hosts().Drop(cluster.HostOf(injury.role, injury.victim),
                                     injury.dice % 2 == 0 ? "input" : "output"));
  }
  absl::Status Heal(Cluster& cluster, const Injury& injury) override {
    return Said(cluster.hosts().DropNothing(cluster.HostOf(injury.role, injury.victim)));
  }
};

/// The file system of the data directory, or /dev/shm, shrinks to what is in it.
class Full final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) override {
    return ResizeMount(Path(cluster, injury), 0);
  }
  absl::Status Heal(Cluster& cluster, const Injury& injury) override {
    return ResizeMount(Path(cluster, injury), kMountBytes);
  }

 private:
  static std::string Path(const Cluster& cluster, const Injury& injury) {
    if (injury.kind == Kind::kShmFull) return kSharedMemory;
    return cluster.DataDirOf(cluster.Find(injury.role, injury.victim).node_id);
  }
};

/// A disk flips a bit while nobody looks: the process dies, and reads it when it starts again.
class BitFlip final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) override {
    ONEPIECE_ASSIGN_OR_RETURN(const ProcessId process, Running(cluster, injury));
    // The supervisor would start it again before the bit is flipped; it does not see a stopped one.
    ONEPIECE_RETURN_IF_ERROR(Signal(process, SIGSTOP));
    const absl::Status flipped =
        Flip(cluster.DataDirOf(cluster.Find(injury.role, injury.victim).node_id), injury.dice);
    ONEPIECE_RETURN_IF_ERROR(Signal(process, SIGKILL));
    return flipped;
  }
  absl::Status Heal(Cluster&, const Injury&) override { return absl::OkStatus(); }

 private:
  /// Flips a bit of a file that a database reads at its start. Every file is as likely as another.
  static absl::Status Flip(const std::string& folder, std::uint64_t dice) {
    std::vector<fs::path> files;
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
      const std::string ending = entry.path().extension().string();
      const bool data = ending == ".sqlite" || ending == ".sqlite-wal" || ending == ".result";
      if (data && entry.is_regular_file(error) && entry.file_size(error) > 0)
        files.push_back(entry.path());
    }
    if (files.empty()) return CannotDo("no data in " + folder);
    std::ranges::sort(files);
    const fs::path& path = files[dice % files.size()];
    const std::uint64_t bit = (dice >> 8) % (fs::file_size(path, error) * 8);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    char byte = 0;
    file.seekg(static_cast<std::streamoff>(bit / 8)).get(byte);
    byte = static_cast<char>(byte ^ (1 << (bit % 8)));
    file.seekp(static_cast<std::streamoff>(bit / 8)).put(byte).flush();
    return file ? absl::OkStatus() : CannotDo("cannot write " + path.string());
  }
};

class ClockJump final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) override {
    return cluster.MoveClock(cluster.Find(injury.role, injury.victim).node_id,
                             kJumps[injury.dice % std::size(kJumps)]);
  }
  absl::Status Heal(Cluster& cluster, const Injury& injury) override {
    return cluster.MoveClock(cluster.Find(injury.role, injury.victim).node_id, 0);
  }
};

class MemoryLimit final : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) override {
    ONEPIECE_ASSIGN_OR_RETURN(process_, Running(cluster, injury));
    std::ifstream statm("/proc/" + std::to_string(process_.pid) + "/statm");
    rlim_t pages = 0;
    if (!(statm >> pages)) return CannotDo("no /proc entry");
    return Limit(pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kMemoryLeft);
  }
  absl::Status Heal(Cluster&, const Injury&) override {
    return local::IsRunning(process_) ? Limit(RLIM_INFINITY) : absl::OkStatus();
  }

 private:
  [[nodiscard]] absl::Status Limit(rlim_t bytes) const {
    const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    if (::prlimit(process_.pid, RLIMIT_AS, &limit, nullptr) == 0) return absl::OkStatus();
    return CannotDo(std::string("prlimit: ") + std::strerror(errno));
  }
  ProcessId process_{};
};

}  // namespace

std::unique_ptr<Fault> MakeFault(Kind kind) {
  switch (kind) {
    case Kind::kKill:
      return std::make_unique<KillFault>();
    case Kind::kStop:
      return std::make_unique<StopFault>();
    case Kind::kLinkDown:
      return std::make_unique<LinkDown>();
    case Kind::kDropPackets:
      return std::make_unique<DropPackets>();
    case Kind::kDiskFull:
    case Kind::kShmFull:
      return std::make_unique<Full>();
    case Kind::kBitFlip:
      return std::make_unique<BitFlip>();
    case Kind::kClockJump:
      return std::make_unique<ClockJump>();
    case Kind::kMemoryLimit:
      return std::make_unique<MemoryLimit>();
    case Kind::kAllDisksLost:
      return MakeAllDisksLost();
    case Kind::kMajorityLost:
      return MakeMajorityLost();
    case Kind::kRotateAuthority:
      return MakeRotateAuthority();
    case Kind::kRevokeBystander:
      return MakeRevokeBystander();
  }
  return nullptr;
}

}  // namespace onepiece::ledger
