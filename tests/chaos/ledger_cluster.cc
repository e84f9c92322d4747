#include "tests/chaos/ledger_cluster.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cluster/base/status.h"
#include "cluster/local/data_dir.h"
#include "cluster/local/identities.h"
#include "cluster/service/program.h"
#include "tests/chaos/ledger_workflow.h"
#include "tests/eventually.h"
#include "tests/identities.h"

namespace onepiece::ledger {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr auto kStartLimit = seconds(120), kStopLimit = seconds(60);
constexpr char kFakeTime[] = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

constexpr char kClusterYaml[] =
    "workflow_files: [ledger.yaml]\n"
    "nodemanagers: 3\n"
    "proxies: 2\n"
    "databases: 2\n"
    "database_budget_bytes: 805306368\n"
    "database_when_full: WHEN_FULL_SPILL\n"
    "instances:\n"
    "  - {stage: draw, count: 2}\n"
    "  - {stage: fill, count: 2}\n"
    "ring: {capacity_bytes: 33554432}\n"
    "elasticity: {policy: static}\n";
// The supervisor starts this in the place of a service. It gives the service a clock and a host of
// its own, and becomes it, so that the process keeps its number.
constexpr char kWrapper[] =
    "#!/bin/sh\n"
    "node=$(basename \"$2\" .yaml)\n"
    "config=$2\n"
    "shift 2\n"
    "CLOCK\n"
    "NETWORK\n"
    "exec PROGRAM --config \"$config\" \"$@\"\n";
constexpr char kClock[] =
    "echo +0 > FOLDER/clocks/$node\n"
    "export LD_PRELOAD=LIBRARY FAKETIME_TIMESTAMP_FILE=FOLDER/clocks/$node\n"
    "export FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1\n";
// The NodeManagers are at the switch, where the supervisor and the clients are too. The others send
// each other their messages over their cables: /dev/shm would reach past a cut one.
constexpr char kNetwork[] =
    "sed s/127.0.0.1/10.213.8.254/ \"$config\" > FOLDER/hosts/$node.yaml\n"
    "case $node in\n"
    "  nodemanager-*) port=$(sed -n 's/.*listen: \"[0-9.]*:\\([0-9]*\\)\".*/\\1/p' \"$config\")\n"
    "    set -- --listen 0.0.0.0:$port --advertise 10.213.8.254:$port \"$@\"\n"
    "    config=FOLDER/hosts/$node.yaml ;;\n"
    "  *) . FOLDER/hosts/$node\n"
    "    exec ip netns exec $host PROGRAM --config FOLDER/hosts/$node.yaml \\\n"
    "      --listen $address:0 --metrics-address $address:0 --fabric ucx://eth0 \"$@\" ;;\n"
    "esac\n";

absl::Status Failed(std::string_view reason, const std::string& what) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason, what);
}
absl::Status Failed(std::string_view reason, const std::string& what, int error) {
  return Failed(reason, what + ": " + std::strerror(error));
}

/// The names of a role's processes, as `onepiece up` gives them.
std::vector<std::string> NamesOf(Role role) {
  switch (role) {
    case Role::kDatabase:
      return {"database-1", "database-2"};
    case Role::kInstance:
      return {"instance-draw-1", "instance-draw-2", "instance-fill-1", "instance-fill-2"};
    case Role::kProxy:
      return {"proxy-1", "proxy-2"};
    case Role::kNodeManager:
      return {"nodemanager-1", "nodemanager-2", "nodemanager-3"};
    case Role::kMachine:
    case Role::kGroup:
      return {};
  }
  return {};
}

/// The nodes with a host of their own, in the order of the hosts.
std::vector<std::string> NodesWithHosts() {
  std::vector<std::string> nodes;
  for (const Role role : {Role::kDatabase, Role::kInstance, Role::kProxy}) {
    for (const std::string& name : NamesOf(role)) nodes.push_back(name);
  }
  return nodes;
}

absl::Status Mount(const std::string& path, std::int64_t bytes) {
  const std::string options = absl::StrCat("size=", bytes);
  if (::mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) == 0) return absl::OkStatus();
  return Failed("NO_PERMISSION", "mount " + path, errno);
}

bool IsReady(const local::ProcessRecord& record) {
  return record.process.pid > 0 && !record.address.empty() && local::IsRunning(record.process);
}

}  // namespace

Needs NeedsOf(const std::vector<FaultKind>& faults) {
  Needs needs;
  for (const FaultKind& fault : faults) {
    needs.mounts |= fault.kind == Kind::kDiskFull || fault.kind == Kind::kShmFull;
    needs.hosts |= fault.kind == Kind::kLinkDown || fault.kind == Kind::kDropPackets;
    needs.clocks |= fault.kind == Kind::kClockJump;
  }
  needs.mounts |= needs.hosts;  // The names of the namespaces are in a file system of the run.
  return needs;
}

absl::Status EnterOwnMachine(const Needs& needs) {
  if (needs.clocks && !fs::exists(kFakeTime))
    return Failed("NO_FAKETIME", std::string("there is no ") + kFakeTime + ": package faketime");
  if (!needs.mounts) return absl::OkStatus();
  if (::unshare(CLONE_NEWNS) != 0) return Failed("NO_PERMISSION", "unshare", errno);
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return Failed("NO_PERMISSION", "make mounts private", errno);
  ONEPIECE_RETURN_IF_ERROR(Mount(kSharedMemory, kMountBytes));
  if (!needs.hosts) return absl::OkStatus();
  std::error_code error;
  fs::create_directories("/run/netns", error);
  return Mount("/run/netns", 1 << 20);
}

absl::Status ResizeMount(const std::string& path, std::int64_t bytes) {
  struct statvfs use {};
  if (::statvfs(path.c_str(), &use) != 0) return Failed("NO_MOUNT", path, errno);
  const auto used = static_cast<std::int64_t>((use.f_blocks - use.f_bfree) * use.f_frsize);
  // A size of 0 would mean no limit.
  const std::int64_t size = bytes > 0 ? bytes : std::max<std::int64_t>(used, 4096);
  const std::string options = absl::StrCat("size=", size);
  if (::mount("none", path.c_str(), nullptr, MS_REMOUNT, options.c_str()) == 0)
    return absl::OkStatus();
  return Failed("NO_MOUNT", "resize " + path, errno);
}

Cluster::Cluster(ClusterOptions options)
    : options_(std::move(options)),
      data_{options_.folder + "/data"},
      hosts_(options_.needs.hosts ? static_cast<int>(NodesWithHosts().size()) : 0) {}

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(const ClusterOptions& options) {
  std::unique_ptr<Cluster> cluster(new Cluster(options));
  ONEPIECE_RETURN_IF_ERROR(cluster->Prepare());
  const Needs& needs = options.needs;
  const bool wrapped = needs.hosts || needs.clocks;
  const std::string bin_dir = wrapped ? options.folder + "/bin" : options.bin_dir;
  ::setenv("ONEPIECE_BIN_DIR", bin_dir.c_str(), 1);
  ::setenv("ONEPIECE_PLUGIN_DIR", options.plugin_dir.c_str(), 1);
  local::SpawnOptions spawn;
  spawn.arguments = {options.bin_dir + "/onepiece",    "up",         "--foreground",     "--config",
                     options.folder + "/cluster.yaml", "--data-dir", cluster->data_.path};
  spawn.output_path = options.folder + "/supervisor.log";
  ONEPIECE_ASSIGN_OR_RETURN(cluster->supervisor_, local::Spawn(spawn));
  ONEPIECE_RETURN_IF_ERROR(cluster->WaitUntilReady());
  return cluster;
}

absl::Status Cluster::Prepare() {
  const std::string& folder = options_.folder;
  std::ofstream(folder + "/ledger.yaml") << kLedgerWorkflow;
  std::ofstream(folder + "/cluster.yaml") << kClusterYaml;
  std::error_code error;
  if (options_.needs.mounts) {
    for (const std::string& name : NamesOf(Role::kDatabase)) {
      fs::create_directories(DataDirOf(name), error);
      ONEPIECE_RETURN_IF_ERROR(Mount(DataDirOf(name), kMountBytes));
    }
  }
  if (options_.needs.hosts) {
    std::string why;
    if (!hosts_.Make(why)) return Failed("NO_PERMISSION", "no network namespaces: " + why);
    why = hosts_.Join();
    if (!why.empty()) return Failed("NO_PERMISSION", "no network: " + why);
  }
  if (options_.needs.clocks) ONEPIECE_RETURN_IF_ERROR(MakeLongIdentities());
  return options_.needs.hosts || options_.needs.clocks ? WriteWrappers() : absl::OkStatus();
}

// With certificates as `onepiece up` makes them, a process whose clock is moved by more than their
// life would see all others' as expired.
absl::Status Cluster::MakeLongIdentities() const {
  constexpr char kId[] = "c10c5a71e5ee";
  ONEPIECE_RETURN_IF_ERROR(local::PrepareDataDir(data_.path).status());
  ONEPIECE_RETURN_IF_ERROR(service::WriteFileAtomically(data_.path + "/cluster_id", kId));
  const testing::TestAuthority authority(kId, 400 * identity::kDay, identity::kMaxCertificateLife);
  const std::string folder = data_.Identity();
  ONEPIECE_RETURN_IF_ERROR(identity::SaveAuthority(folder, authority.authority()));
  authority.SavePrincipal(folder, identity::kAdminName, {identity::Scope::kAdmin});
  for (const Role role : {Role::kDatabase, Role::kInstance, Role::kProxy, Role::kNodeManager}) {
    for (const std::string& name : NamesOf(role)) {
      authority.SaveNode(folder + "/" + name, name,
                         {*identity::ParseRole(std::string(NameOf(role)))});
    }
  }
  return absl::OkStatus();
}

absl::Status Cluster::WriteWrappers() const {
  const std::string& folder = options_.folder;
  std::error_code error;
  for (const char* part : {"/bin", "/clocks", "/hosts"})
    fs::create_directories(folder + part, error);
  const std::vector<std::string> nodes = NodesWithHosts();
  for (std::size_t i = 0; i < nodes.size() && options_.needs.hosts; ++i) {
    const int host = static_cast<int>(i);
    std::ofstream(folder + "/hosts/" + nodes[i])
        << "host=" << chaos::Hosts::Name(host).toStdString()
        << " address=" << chaos::Hosts::Address(host) << "\n";
  }
  for (const Role role : {Role::kDatabase, Role::kInstance, Role::kProxy, Role::kNodeManager}) {
    const std::string program = "onepiece-" + std::string(NameOf(role));
    const std::string wrapper = absl::StrReplaceAll(
        absl::StrReplaceAll(kWrapper, {{"CLOCK\n", options_.needs.clocks ? kClock : ""},
                                       {"NETWORK\n", options_.needs.hosts ? kNetwork : ""}}),
        {{"FOLDER", folder},
         {"LIBRARY", kFakeTime},
         {"PROGRAM", options_.bin_dir + "/" + program}});
    const std::string path = folder + "/bin/" + program;
    std::ofstream(path) << wrapper;
    fs::permissions(path, fs::perms::owner_all, error);
    if (error) return Failed("NO_PERMISSION", path + ": " + error.message());
  }
  return absl::OkStatus();
}

absl::Status Cluster::WaitUntilReady() {
  bool ended = false;
  const bool ready = testing::Eventually(base::Scaled(kStartLimit), [&] {
    ended = ::waitpid(supervisor_.pid, nullptr, WNOHANG) == supervisor_.pid;
    return ended || State().ready;
  });
  if (ended) supervisor_ = {};
  if (ready && !ended) return local::ShowIdentity(State().identity);
  return Failed("NO_CLUSTER", local::ReadFile(options_.folder + "/supervisor.log") + Logs());
}

Cluster::~Cluster() {
  if (supervisor_.pid > 0) Stop();
  if (!options_.needs.mounts) return;
  // Who made the folder can then remove it.
  for (const std::string& name : NamesOf(Role::kDatabase))
    ::umount2(DataDirOf(name).c_str(), MNT_DETACH);
}

void Cluster::Stop() const {
  ::kill(supervisor_.pid, SIGTERM);
  const bool ended = testing::Eventually(base::Scaled(kStopLimit), [&] {
    return ::waitpid(supervisor_.pid, nullptr, WNOHANG) == supervisor_.pid;
  });
  if (ended) return;
  // Its services die with it.
  ::kill(supervisor_.pid, SIGKILL);
  ::waitpid(supervisor_.pid, nullptr, 0);
}

const Population& Cluster::population() {
  static const Population population = [] {
    Population counts(kRoles);
    for (int role = 0; role < kRoles; ++role) {
      counts[static_cast<std::size_t>(role)] =
          static_cast<int>(NamesOf(static_cast<Role>(role)).size());
    }
    counts[static_cast<std::size_t>(Role::kMachine)] = 1;
    counts[static_cast<std::size_t>(Role::kGroup)] = 1;
    return counts;
  }();
  return population;
}

local::ClusterState Cluster::State() const {
  const auto state = local::ReadState(data_);
  return state.ok() && state->has_value() ? **state : local::ClusterState();
}

local::ProcessRecord Cluster::Find(Role role, int victim) const {
  const std::string name = NamesOf(role).at(static_cast<std::size_t>(victim));
  for (const local::ProcessRecord& record : State().processes) {
    if (record.node_id == name) return record;
  }
  return {.node_id = name};
}

std::vector<local::ProcessRecord> Cluster::Ready(Role role) const {
  std::vector<local::ProcessRecord> ready;
  for (const local::ProcessRecord& record : State().processes) {
    if (record.role == NameOf(role) && IsReady(record)) ready.push_back(record);
  }
  return ready;
}

bool Cluster::IsWhole(Role role) const { return Ready(role).size() == NamesOf(role).size(); }

std::string Cluster::DataDirOf(const std::string& node) const { return data_.path + "/" + node; }

absl::Status Cluster::SignalSupervisor(int signal) const {
  if (::kill(supervisor_.pid, signal) == 0) return absl::OkStatus();
  return Failed("NO_SUPERVISOR", "kill", errno);
}

absl::Status Cluster::MoveClock(const std::string& node, std::int64_t by_s) const {
  const std::string path = options_.folder + "/clocks/" + node, part = path + ".part";
  std::ofstream(part) << (by_s < 0 ? "" : "+") << by_s << "\n";
  if (::rename(part.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return Failed("NO_CLOCK", path, errno);
}

int Cluster::HostOf(Role role, int victim) const {
  const std::vector<std::string> nodes = NodesWithHosts();
  const std::string name = NamesOf(role).at(static_cast<std::size_t>(victim));
  return static_cast<int>(std::ranges::find(nodes, name) - nodes.begin());
}

std::string Cluster::Logs() const {
  std::string text;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(data_.LogDir(), error)) {
    std::string log = local::ReadFile(entry.path().string());
    constexpr std::size_t kTailBytes = 3000;
    if (log.size() > kTailBytes) log.erase(0, log.size() - kTailBytes);
    text += "--- " + entry.path().filename().string() + "\n" + log;
  }
  return text;
}

}  // namespace onepiece::ledger
