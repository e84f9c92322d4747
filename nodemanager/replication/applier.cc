#include "nodemanager/replication/applier.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "cluster/base/crc32c.h"
#include "nodemanager/replication/boot_clock.h"
#include "nodemanager/replication/command_bytes.h"
#include "nodemanager/replication/log_errors.h"

namespace onepiece::nodemanager {
namespace {

// Readers get a turn after so many tasks.
constexpr std::size_t kChunk = 64;
// More than this should not wait to be applied.
constexpr std::size_t kMaxTasks = 4096;
constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

}  // namespace

absl::Status Applier::Open(const paxos::Snapshot& snapshot) {
  absl::Status status;
  {
    const base::MutexLock lock(machine_mutex_);
    status = machine_.Restore(*snapshot.state);
    if (status.ok()) SetApplied(snapshot.index);
  }
  if (status.ok()) return status;
  halted_ = true;
  const base::MutexLock lock(mutex_);
  ended_ = true;
  return status;
}

void Applier::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void Applier::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

std::size_t Applier::BytesOf(const Task& task) {
  if (task.restore != nullptr) return task.restore->state ? task.restore->state->size() : 0;
  return task.chosen.entry.bytes();
}

void Applier::Push(std::vector<Task> tasks) {
  if (tasks.empty()) return;
  bool first = false;
  {
    const base::MutexLock lock(mutex_);
    first = tasks_.empty();
    open_tasks_ += tasks.size();
    for (Task& task : tasks) {
      open_bytes_ += BytesOf(task);
      tasks_.push_back(std::move(task));
    }
    if (open_tasks_ >= kMaxTasks || open_bytes_ >= kMaxBytes) has_room_ = false;
  }
  if (first) pushed_.NotifyOne();
}

bool Applier::WakeAt(paxos::Slot slot) {
  const base::MutexLock lock(mutex_);
  // The slot may have been applied since the caller looked. Tell() looks at wake_at_ under the same
  // mutex, so one of the two notices.
  const bool reached = applied() >= slot;
  wake_at_ = reached ? paxos::Slot{} : slot;
  return reached;
}

void Applier::AskForState() {
  {
    const base::MutexLock lock(mutex_);
    wants_state_ = true;
  }
  pushed_.NotifyOne();
}

Applier::Report Applier::TakeReport() {
  const base::MutexLock lock(mutex_);
  return std::exchange(report_, {});
}

void Applier::Read(absl::FunctionRef<void(const StateMachine&, paxos::Slot applied)> read) const {
  const base::MutexLock lock(machine_mutex_);
  read(machine_, applied_);
}

bool Applier::Await(paxos::Slot slot, base::Duration limit) const {
  if (applied() >= slot) return true;
  base::MutexLock lock(mutex_);
  ++waiters_;
  progressed_.WaitFor(lock, limit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return applied() >= slot || ended_;
  });
  --waiters_;
  return applied() >= slot;
}

void Applier::Run(const std::stop_token& stop) {
  for (Work work = Take(stop); !work.tasks.empty() || work.state; work = Take(stop)) {
    Apply(std::move(work.tasks));
    if (work.state && !halted_) MakeState();
  }
  const base::MutexLock lock(mutex_);
  ended_ = true;
  progressed_.NotifyAll();
}

Applier::Work Applier::Take(const std::stop_token& stop) {
  Work work;
  base::MutexLock lock(mutex_);
  pushed_.Wait(lock, stop, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !tasks_.empty() || wants_state_;
  });
  const std::size_t count = std::min(kChunk, tasks_.size());
  work.tasks.reserve(count);
  for (; work.tasks.size() < count; tasks_.pop_front())
    work.tasks.push_back(std::move(tasks_.front()));
  // Nobody takes a state that is made after the end.
  work.state = std::exchange(wants_state_, false) && !stop.stop_requested();
  return work;
}

void Applier::Apply(std::vector<Task> tasks) {
  std::vector<Answer> answers;
  std::string newer;
  const paxos::Time begun = BootNow();
  {
    const base::MutexLock lock(machine_mutex_);
    for (Task& task : tasks) {
      if (!halted_) newer = ApplyTask(task, answers);
      halted_ = halted_ || !newer.empty();
      // What follows stays in the log, for a newer program.
      if (!halted_) continue;
      for (std::shared_ptr<LogRequest>& request : task.requests)
        answers.emplace_back(std::move(request), OutcomeUnknown("this program is too old"));
    }
  }
  if (observers_.applied && !tasks.empty()) observers_.applied(BootNow() - begun);
  for (auto& [request, result] : answers) request->Finish(std::move(result));
  if (!newer.empty()) {
    const base::MutexLock lock(mutex_);
    report_.newer = newer;
    ended_ = true;
  }
  Tell(tasks);
  if (!newer.empty()) wake_();
}

std::string Applier::ApplyTask(Task& task, std::vector<Answer>& answers) {
  if (task.restore != nullptr) {
    if (task.restore->index <= applied()) return "";
    if (!machine_.Restore(*task.restore->state).ok())
      return absl::StrCat("the snapshot of slot ", task.restore->index.value);
    SetApplied(task.restore->index);
    if (observers_.hashes != nullptr) observers_.hashes->ForgetOwn();
    return "";
  }
  const auto& [slot, entry] = task.chosen;
  // After a disk failure the replica is made anew, and hands out slots that are applied already.
  if (slot <= applied()) {
    for (std::shared_ptr<LogRequest>& request : task.requests)
      answers.emplace_back(std::move(request), OutcomeUnknown("the disk failed"));
    return "";
  }
  v1::CommandResult result;
  if (!ApplyEntry(task, result))
    return absl::StrCat("slot ", slot.value, " (version ", entry.version, ")");
  SetApplied(slot);
  HashState();
  for (std::shared_ptr<LogRequest>& request : task.requests)
    answers.emplace_back(std::move(request), result);
  return "";
}

bool Applier::ApplyEntry(const Task& task, v1::CommandResult& result) {
  const paxos::LogEntry& entry = task.chosen.entry;
  if (entry.version > version_) return false;
  if (entry.kind != paxos::LogEntry::Kind::kCommand) return true;
  const std::uint64_t index = machine_.applied_index() + 1;
  // Who proposed the command has parsed the same bytes already.
  if (!task.requests.empty() && task.requests.front()->command) {
    result = machine_.Apply(index, *task.requests.front()->command, entry.version);
    return true;
  }
  v1::Command command;
  if (!ReadCommand(*entry.payload, command)) return false;
  result = machine_.Apply(index, command, entry.version);
  return true;
}

// Whoever finds a slot applied finds the level of that slot, too.
void Applier::SetApplied(paxos::Slot slot) {
  version_limit_ = machine_.VersionLimit(v1::Command::default_instance());
  applied_ = slot;
}

void Applier::HashState() const {
  if (observers_.hashes == nullptr || !observers_.hashes->IsDue(applied())) return;
  const std::string state = machine_.Serialize();
  observers_.hashes->AddOwn({applied(), base::Crc32c(std::as_bytes(std::span(state)))},
                            state.size());
}

void Applier::MakeState() {
  StateAt state;
  Read([&](const StateMachine& machine, paxos::Slot slot) {
    state = {slot, std::make_shared<const std::string>(machine.Serialize())};
  });
  {
    const base::MutexLock lock(mutex_);
    report_.state = std::move(state);
  }
  wake_();
}

void Applier::Tell(const std::vector<Task>& done) {
  if (done.empty()) return;
  bool wakes = false;
  {
    const base::MutexLock lock(mutex_);
    open_tasks_ -= done.size();
    for (const Task& task : done) open_bytes_ -= BytesOf(task);
    // The driver goes on only when half is free, so that it is not woken for each task.
    if (!has_room_ && open_tasks_ <= kMaxTasks / 2 && open_bytes_ <= kMaxBytes / 2) {
      has_room_ = true;
      wakes = true;
    }
    if (wake_at_ != paxos::Slot{} && applied() >= wake_at_) {
      wake_at_ = {};
      wakes = true;
    }
    if (waiters_ > 0) progressed_.NotifyAll();
  }
  if (wakes) wake_();
}

}  // namespace onepiece::nodemanager
