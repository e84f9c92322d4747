#include "stages/instance/work_intake.h"

#include <utility>

#include "absl/status/status.h"
#include "cluster/job/job_record.h"
#include "onepiece/v1/ring.pb.h"
#include "spdlog/spdlog.h"

namespace onepiece::instance {
namespace {

constexpr auto kPumpWait = std::chrono::milliseconds(500);
// The pause before each message that is taken out of the reserve.
constexpr auto kReservePause = std::chrono::milliseconds(20);

}  // namespace

WorkIntake::WorkIntake(Parts parts) : parts_(parts) {
  parts_.inbox.SetAdmission(
      [this](const v1::ReserveValueRequest& request) { return Admit(request); });
}

// Branches of a join are admitted by the scheduler, so that those that complete joins find room.
node::Inbox::Admitted WorkIntake::Admit(const v1::ReserveValueRequest& request) {
  const std::optional<base::Uid> uid = base::Uid::Parse(request.uid());
  if (!uid.has_value()) return nullptr;
  message::Header header;
  header.uid = *uid;
  header.stage = request.stage();
  header.from = request.from();
  const auto table = parts_.view.routing();
  return parts_.scheduler.Admit(
      header, table->GraphOf(request.app_id()).Predecessors(request.stage()), request.length());
}

void WorkIntake::Start() {
  pump_ = std::jthread([this](const std::stop_token& stop) { Pump(stop); });
}

void WorkIntake::Stop() { pump_ = {}; }

std::vector<runtime::WorkItem> WorkIntake::TakeRest() {
  while (true) {
    auto received = parts_.inbox.Receive(parts_.clock.Now());
    if (!received.ok()) break;
    TakeIn(std::move(*received));
  }
  return std::exchange(left_, {});
}

// A message that was just received is counted nowhere until the pump has set `idle_`. That is why a
// drain needs two empty looks in a row.
std::size_t WorkIntake::arriving() const {
  const std::size_t in_ring = parts_.inbox.stats().slots_used;
  return in_ring + (idle_ ? 0 : 1);
}

void WorkIntake::Pump(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    // While no database takes updates, the jobs that come would only add to those that wait.
    if (parts_.updates.full()) {
      parts_.clock.Pause(stop, kPumpWait);
      continue;
    }
    // With a full queue the ring fills up behind it, and its senders see BUSY. While only joins
    // leave no room, single messages are taken all the same: they may be what the joins wait for.
    const bool reserve = parts_.scheduler.HasReserve();
    const auto until = parts_.clock.Now() + (reserve ? kReservePause : kPumpWait);
    if (!parts_.scheduler.WaitForRoom(stop, until) && (!reserve || stop.stop_requested())) continue;
    auto received = parts_.inbox.Receive(parts_.clock.Now() + kPumpWait);
    // A message that is in hand counts until the next wait is in vain.
    idle_ = !received.ok();
    if (received.ok()) {
      TakeIn(std::move(*received));
    } else if (absl::IsCancelled(received.status())) {
      return;
    }
  }
}

void WorkIntake::TakeIn(node::Received received) {
  const auto& header = received.message.header;
  if (header.kind != message::Kind::kWork) {
    spdlog::warn("uid={} message of kind {} from {} is not for an instance; dropped",
                 header.uid.ToString(), static_cast<int>(header.kind), header.sender);
    return;
  }
  runtime::WorkItem item{.message = std::move(received.message),
                         .arrival = received.arrival,
                         .arrival_time = received.arrival_wall,
                         .parts = {},
                         .by_value = received.by_value};
  if (parts_.former_set.FailIfLate(item)) return;
  const message::Header kept = item.message.header;
  if (!parts_.tasks.IsAssigned(kept.stage, kept.app) || parts_.drain.orders().pass_on) {
    // The sender's routing table is out of date.
    return parts_.deliver.Submit({std::move(item), {}, runtime::WrongStage(), {}});
  }
  using runtime::PushResult;
  const auto table = parts_.view.routing();
  // The item is copied, because it is still needed when the scheduler is closed. Copies share the
  // artifacts' bytes.
  const auto pushed =
      parts_.scheduler.Push(item, table->GraphOf(kept.app).Predecessors(kept.stage));
  if (!pushed.ok()) return parts_.updates.Fail(kept, pushed.status());
  if (*pushed == PushResult::kQueued || *pushed == PushResult::kHeld) {
    // The sender reports this too. But if it died before that, the job would be taken for lost.
    parts_.updates.Placed(kept);
  } else if (*pushed == PushResult::kFenced) {
    spdlog::info("uid={} stage={} run {} is dropped: a later run of the job has come here",
                 kept.uid.ToString(), kept.stage, job::RunSequence(kept.run));
  } else if (*pushed == PushResult::kClosed) {
    left_.push_back(std::move(item));
  }
}

}  // namespace onepiece::instance
