#include "stages/instance/instance_upkeep.h"

#include <algorithm>
#include <utility>

namespace onepiece::instance {
namespace {

constexpr auto kInstanceUpkeepInterval = std::chrono::milliseconds(100);
// While this many items wait to be delivered, no more of the queue is passed on, so that results
// take turns with it.
constexpr std::size_t kPassedOnAtOnce = 8;
// A job is asked about when its branches have waited for so long, and again after each further
// pause; scaled. A look asks about so many at most.
constexpr base::Duration kAskAboutJoin = std::chrono::seconds(5);
constexpr std::size_t kJoinsPerLook = 20;

}  // namespace

InstanceUpkeep::InstanceUpkeep(std::string node_id, Parts parts)
    : node_id_(std::move(node_id)), parts_(parts) {}

void InstanceUpkeep::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void InstanceUpkeep::Stop() { thread_ = {}; }

void InstanceUpkeep::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    parts_.clock.Pause(stop, kInstanceUpkeepInterval);
    ExpireJoins();
    AskAboutJoins();
    SendPartsElsewhere();
    LookAfterDrain();
    parts_.assignments.RetryFailedModels();
  }
}

void InstanceUpkeep::ExpireJoins() {
  for (const auto& join : parts_.scheduler.ExpireJoins())
    parts_.updates.Fail(join.header, join.why);
}

// The job of a branch may have ended without it: another branch failed, or the work of the join was
// done by an earlier attempt. The answer to a report says so, and the branch is dropped (FenceBy).
void InstanceUpkeep::AskAboutJoins() {
  if (parts_.updates.full()) return;
  for (const message::Header& branch :
       parts_.scheduler.WaitingJoins(base::Scaled(kAskAboutJoin), kJoinsPerLook))
    parts_.updates.Placed(branch);
}

// Parts of joins whose job meets at another instance are sent there.
void InstanceUpkeep::SendPartsElsewhere() {
  const auto table = parts_.view.routing();
  auto parts = parts_.scheduler.TakeJoins([&](const message::Header& header) {
    // A sender with a newer table knows better where its job meets.
    if (header.routing_epoch > table->epoch()) return false;
    const auto point = table->MeetingPoint(header.app, header.stage, header.uid);
    return point.has_value() && point->node_id() != node_id_;
  });
  for (auto& part : parts) parts_.deliver.Add({std::move(part), {}, runtime::WrongStage(), {}});
}

void InstanceUpkeep::LookAfterDrain() {
  if (!parts_.drain.active()) return;
  // This comes before the orders are read, so that they are those of this look.
  const bool changed = parts_.drain.Look(Held(), OthersServeAll());
  // Add never waits for a taker, since this thread has other duties.
  for (std::size_t left = parts_.drain.orders().pass_on ? parts_.scheduler.queued() : 0;
       left > 0 && parts_.deliver.held() < kPassedOnAtOnce; --left) {
    auto item = parts_.scheduler.Take();
    if (!item) break;
    parts_.deliver.Add({*std::move(item), {}, runtime::WrongStage(), {}});
  }
  if (changed) parts_.publisher.Publish();
}

// The order is that in which a message passes through the instance. One that moves on between two
// counts is counted twice rather than never.
std::size_t InstanceUpkeep::Held() const {
  const std::size_t arriving = parts_.intake.arriving();
  const std::size_t here = parts_.scheduler.held();
  return arriving + here + parts_.deliver.held();
}

bool InstanceUpkeep::OthersServeAll() const {
  const auto table = parts_.view.routing();
  const auto assignment = parts_.tasks.assignment();
  return std::ranges::all_of(assignment.models, [&](const runtime::AppModel& model) {
    return OthersServe(*table, model.app, assignment.stage, node_id_);
  });
}

}  // namespace onepiece::instance
