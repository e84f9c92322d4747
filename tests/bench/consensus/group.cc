#include "tests/bench/consensus/group.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>

#include "cluster/base/status.h"
#include "tests/eventually.h"

namespace onepiece::bench {
namespace {

constexpr auto kSettleLimit = std::chrono::seconds(60);

}  // namespace

absl::StatusOr<std::unique_ptr<Group>> Group::Start(GroupPlan plan, const std::string& dir) {
  std::unique_ptr<Group> group(new Group(std::move(plan), dir));
  group->processes_.resize(group->plan_.arguments.size());
  for (std::size_t member = 0; member < group->processes_.size(); ++member)
    ONEPIECE_RETURN_IF_ERROR(group->StartMember(member));
  ONEPIECE_RETURN_IF_ERROR(group->WaitUntilSettled().status());
  return group;
}

Group::~Group() {
  for (std::size_t member = 0; member < processes_.size(); ++member) KillMember(member);
}

absl::Status Group::StartMember(std::size_t member) {
  ONEPIECE_ASSIGN_OR_RETURN(
      processes_[member],
      local::Spawn({.arguments = plan_.arguments[member],
                    .output_path = dir_ + "/member-" + std::to_string(member) + ".log",
                    .clean_environment = true}));
  return absl::OkStatus();
}

void Group::KillMember(std::size_t member) {
  if (processes_[member].pid == 0) return;
  kill(processes_[member].pid, SIGKILL);
  waitpid(processes_[member].pid, nullptr, 0);
  processes_[member] = {};
}

std::optional<std::size_t> Group::SettledLeader() const {
  std::optional<std::size_t> leader;
  std::vector<std::uint64_t> indexes;
  for (std::size_t member = 0; member < processes_.size(); ++member) {
    const absl::StatusOr<MemberView> view = plan_.view(plan_.addresses[member]);
    if (!view.ok()) return std::nullopt;
    indexes.push_back(view->index);
    if (view->leads) leader = member;
  }
  for (const std::uint64_t index : indexes) {
    if (index == 0 || index != indexes[0]) return std::nullopt;
  }
  return leader;
}

absl::StatusOr<std::size_t> Group::WaitUntilSettled() const {
  std::optional<std::size_t> leader;
  if (testing::Eventually(kSettleLimit, [&] { return (leader = SettledLeader()).has_value(); }))
    return *leader;
  return absl::DeadlineExceededError("no leader with two followers that keep up; see " + dir_);
}

absl::StatusOr<Load> Group::Measure(int clients, int watchers, base::Duration warm_up,
                                    base::Duration window) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::size_t leader, WaitUntilSettled());
  const std::string& address = plan_.addresses[leader];
  ONEPIECE_ASSIGN_OR_RETURN(const auto listeners, Watchers::Open(address, plan_.watch, watchers));
  const std::uint64_t before = listeners->least_messages();
  ONEPIECE_ASSIGN_OR_RETURN(const Load load,
                            RunLoad(address, plan_.write, clients, warm_up, window));
  if (watchers > 0 && listeners->least_messages() == before)
    return absl::DataLossError("a watcher heard nothing of the writes");
  return load;
}

absl::StatusOr<double> Group::FailOver() {
  ONEPIECE_ASSIGN_OR_RETURN(const std::size_t leader, WaitUntilSettled());
  std::vector<std::string> others = plan_.addresses;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(leader));
  const auto time = TimeToFirstWrite(others, plan_.write, [&] { KillMember(leader); });
  ONEPIECE_RETURN_IF_ERROR(StartMember(leader));
  if (!time.ok()) return time.status();
  return std::chrono::duration<double>(*time).count();
}

}  // namespace onepiece::bench
