#include "stages/instance/work_delivery.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/node/work_holder.h"
#include "spdlog/spdlog.h"
#include "stages/instance/keepers.h"
#include "stages/instance/result_delivery.h"
#include "stages/runtime/stage_runner.h"

namespace onepiece::instance {
namespace {

// How long one job may look for a taker before the jobs behind it get their turn.
constexpr auto kDeliverTurn = std::chrono::seconds(1);
// How long a send whose outcome is unknown is repeated before other items get their turn.
constexpr auto kOpenTurn = std::chrono::milliseconds(100);
// How long SendLeft may take: the share of leaving that is for work that nobody has begun.
constexpr auto kSendLeftLimit = std::chrono::seconds(2);

// Nobody took it now, but somebody may take it later.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

// Nobody took it before the instance had to end its sends.
bool IsUntaken(const absl::Status& status) {
  return IsPassing(status) || absl::IsCancelled(status);
}

void SetDuration(google::protobuf::Duration* out, base::Duration value) {
  const auto ns = std::max<std::int64_t>(0, value.count());
  out->set_seconds(ns / 1'000'000'000);
  out->set_nanos(static_cast<std::int32_t>(ns % 1'000'000'000));
}

v1::UpdateJobRequest TimingOf(const runtime::FinishedWork& work, const std::string& node_id) {
  const message::Header& header = work.item.message.header;
  v1::UpdateJobRequest update;
  update.set_uid(header.uid.ToString());
  update.mutable_timing()->set_stage(header.stage);
  update.mutable_timing()->set_node(node_id);
  SetDuration(update.mutable_timing()->mutable_transfer(), work.timing.transfer);
  SetDuration(update.mutable_timing()->mutable_queued(), work.timing.queued);
  SetDuration(update.mutable_timing()->mutable_compute(), work.timing.compute);
  return update;
}

absl::Status CheckStage(const node::Routing& table, const message::Header& header) {
  if (table.StageIndex(header.app, header.stage)) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "UNKNOWN_APP",
                         "application " + header.app + " with this stage no longer exists");
}

}  // namespace

WorkDelivery::WorkDelivery(std::string node_id, Parts parts, ServesHere serves_here)
    : node_id_(std::move(node_id)), parts_(parts), serves_here_(std::move(serves_here)) {}

std::string WorkDelivery::PlaceOf(const message::Header& header, const std::string& stage) const {
  const auto table = parts_.view.routing();
  if (table->GraphOf(header.app).Predecessors(stage).size() > 1) {
    const auto point = table->MeetingPoint(header.app, stage, header.uid);
    if (point.has_value()) return "node " + point->node_id();
  }
  return "stage " + header.app + " " + stage;
}

std::string WorkDelivery::DestinationOf(const runtime::FinishedWork& work) const {
  const message::Header& header = work.item.message.header;
  const std::string reason = base::GetReason(work.outputs.status()).reason;
  if (reason == runtime::kHandedOver || reason == runtime::kWrongStage)
    return PlaceOf(header, header.stage);
  if (!work.outputs.ok()) return "";  // Its job ends here, and only a record is told.
  const auto table = parts_.view.routing();
  const auto successors = table->GraphOf(header.app).Successors(header.stage);
  std::string places;
  for (const std::string& next : successors) places += PlaceOf(header, next) + ";";
  if (!successors.empty()) return places;
  const auto databases = table->DatabasesFor(header.uid);
  return "database " + (databases.empty() ? "" : databases.front().node_id());
}

std::optional<runtime::FinishedWork> WorkDelivery::Deliver(runtime::FinishedWork work) {
  const message::Header& header = work.item.message.header;
  if (parts_.former_set.FailIfLate(work.item)) return std::nullopt;
  if (parts_.scheduler.IsFenced(header)) {
    spdlog::info("uid={} stage={} run {} is dropped: a later run of the job is here",
                 header.uid.ToString(), header.stage, job::RunSequence(header.run));
    return std::nullopt;
  }
  const std::string reason = base::GetReason(work.outputs.status()).reason;
  const bool handed_over = reason == runtime::kHandedOver;
  const bool elsewhere = handed_over || reason == runtime::kWrongStage;
  // Somebody else does this work again, and says what becomes of it.
  if (work.open.empty() && parts_.scheduler.IsFenced(work.item)) {
    spdlog::info("uid={} stage={} attempt {} is dropped: there is a later one",
                 header.uid.ToString(), header.stage, header.attempt);
    return std::nullopt;
  }
  if (!work.outputs.ok() && !elsewhere) {
    const bool stopped = parts_.leaving && absl::IsCancelled(work.outputs.status());
    if (!stopped || !IsLeft(work.item)) parts_.updates.Fail(header, work.outputs.status());
    return std::nullopt;
  }
  if (elsewhere && work.open.empty() && StaysHere(header)) {
    const auto table = parts_.view.routing();
    const auto returned =
        parts_.scheduler.Return(work.item, table->GraphOf(header.app).Predecessors(header.stage));
    if (!returned.ok()) parts_.updates.Fail(header, returned.status());
    if (!returned.ok() || *returned) return std::nullopt;
  }
  const absl::Status sent = elsewhere ? Forward(work.item, work.open) : HandOn(work);
  if (sent.ok() && handed_over)
    spdlog::info("uid={} stage={} goes on elsewhere", header.uid.ToString(), header.stage);
  if (sent.ok() && !elsewhere) Completed(work.item);
  if (sent.ok()) return std::nullopt;
  if (parts_.leaving && IsUntaken(sent) && IsLeft(work.item)) return std::nullopt;
  if (handed_over && parts_.leaving) {
    parts_.updates.FailStopped(header);
    return std::nullopt;
  }
  const bool again = IsPassing(sent) && !parts_.leaving && parts_.clock.Now() < header.deadline &&
                     !parts_.scheduler.IsCancelled(header.uid);
  if (again) return work;
  parts_.updates.Fail(header, sent);
  return std::nullopt;
}

// The keepers of the item's messages need them no longer when the job's record names who has the
// outputs. Before that, this instance may die and take the word with it, and the record would name
// a dead holder and keepers that keep nothing, which is a lost job. For the same reason keepers are
// not told when a job has failed: they find that out from the record.
void WorkDelivery::Completed(const runtime::WorkItem& item) {
  std::vector<message::Header> done;
  for (const message::Message& part : item.parts) done.push_back(part.header);
  if (item.parts.empty()) done.push_back(item.message.header);
  parts_.updates.WhenAnswered(item.message.header.uid,
                              [&settler = parts_.settler, done = std::move(done)] {
                                for (const message::Header& header : done)
                                  settler.Completed(header);
                              });
}

void WorkDelivery::SendLeft(const std::vector<runtime::WorkItem>& left) {
  const auto until = parts_.clock.Now() + base::Scaled(kSendLeftLimit);
  const auto send = [&](const runtime::WorkItem& item) -> absl::Status {
    const message::Header& header = item.message.header;
    const auto table = parts_.view.routing();
    ONEPIECE_RETURN_IF_ERROR(CheckStage(*table, header));
    const bool others =
        table->MeetingPoint(header.app, header.stage, header.uid, node_id_).has_value();
    if (!others || parts_.clock.Now() >= until) return absl::UnavailableError("nobody took it");
    Open open;
    return Forward(item, open);
  };
  for (const auto& item : left) {
    const absl::Status sent = send(item);
    if (sent.ok() || (IsUntaken(sent) && IsLeft(item))) continue;
    parts_.updates.FailStopped(item.message.header);
  }
}

// Whoever keeps the work gives it to another instance when this one is gone, so its job need not
// fail.
bool WorkDelivery::IsLeft(const runtime::WorkItem& item) const {
  if (!IsKept(item, *parts_.view.routing(), node_id_)) return false;
  const message::Header& header = item.message.header;
  spdlog::info("uid={} stage={} is left to whoever keeps it", header.uid.ToString(), header.stage);
  return true;
}

// The drain passes work on to the other instances of the stage. When there are none any more, but
// this instance can still compute the work, the work stays here. The drain may not have noticed
// yet that the others are gone.
bool WorkDelivery::StaysHere(const message::Header& header) const {
  if (!parts_.drain.active()) return false;
  if (OthersServe(*parts_.view.routing(), header.app, header.stage, node_id_)) return false;
  return serves_here_(header.stage, header.app);
}

absl::Status WorkDelivery::Forward(const runtime::WorkItem& item, Open& open) {
  const auto table = parts_.view.routing();
  ONEPIECE_RETURN_IF_ERROR(CheckStage(*table, item.message.header));
  std::vector<message::Message> messages = item.parts;
  if (messages.empty()) messages.push_back(item.message);
  v1::UpdateJobRequest update;
  for (message::Message& message : messages) {
    const message::Header came = message.header;
    // A new attempt. An instance that had the message before must not take it for a second copy
    // should it come back, and the record believes the later holder.
    message.header.attempt = item.message.header.attempt + 1;
    message.header.routing_epoch = table->epoch();
    // Its keeper stays the same, and is told at once who has the message now: it goes on keeping
    // it, and whoever it gave it to next would have this attempt too.
    ONEPIECE_ASSIGN_OR_RETURN(const v1::WorkHolder holder, SendToStage(message, open));
    parts_.settler.Moved(came, holder);
    *update.add_placed() = holder;
  }
  parts_.updates.Report(item.message.header.uid, std::move(update));
  return absl::OkStatus();
}

absl::Status WorkDelivery::HandOn(runtime::FinishedWork& work) {
  const auto table = parts_.view.routing();
  message::Message message;
  message.header = work.item.message.header;
  ONEPIECE_RETURN_IF_ERROR(CheckStage(*table, message.header));
  v1::UpdateJobRequest update = TimingOf(work, node_id_);
  message.header.routing_epoch = table->epoch();
  message.header.from = message.header.stage;
  message.header.deaths = 0;
  message.parameters = work.item.message.parameters;
  const auto successors = table->GraphOf(message.header.app).Successors(message.header.stage);
  if (successors.empty()) AddSha256(*work.outputs);
  message.artifacts = *work.outputs;
  if (successors.empty()) return SendToDatabase(std::move(message), update, work.open);
  return SendToSuccessors(message, work, successors, std::move(update));
}

// A stage that takes nothing now does not hold up the others: it is tried again in the next turn.
absl::Status WorkDelivery::SendToSuccessors(message::Message& message, runtime::FinishedWork& work,
                                            std::span<const std::string> successors,
                                            v1::UpdateJobRequest update) {
  absl::Status failed;
  for (const std::string& next : successors) {
    if (work.delivered.contains(next)) continue;
    message.header.stage = next;
    parts_.kept.Keep(message);
    auto placed = SendToStage(message, work.open);
    if (placed.ok()) {
      parts_.kept.Placed(message.header, *placed);
      work.delivered.insert(next);
      *update.add_placed() = *std::move(placed);
    } else if (failed.ok() || IsPassing(failed)) {
      failed = placed.status();
    }
  }
  if (failed.ok() || update.placed_size() > 0)
    parts_.updates.Report(message.header.uid, std::move(update));
  return failed;
}

absl::StatusOr<node::Delivered> WorkDelivery::Send(const message::Message& message,
                                                   node::Destination target, Open& open) {
  const message::Header& header = message.header;
  const std::string name = header.from + ">" + header.stage;
  std::shared_ptr<node::OpenDelivery> send;
  if (const auto known = open.find(name); known != open.end())
    send = std::static_pointer_cast<node::OpenDelivery>(std::move(open.extract(known).mapped()));
  absl::StatusOr<node::Delivered> delivered;
  do {
    target.patience = base::Scaled(send == nullptr ? base::Duration(kDeliverTurn) : kOpenTurn);
    delivered = parts_.outbox.DeliverInTurns(message, target, header.deadline, send);
    // There is no later turn for an instance that leaves. Leave closes the outbox in time.
  } while (send != nullptr && parts_.leaving);
  if (send != nullptr) open.emplace(name, std::move(send));
  return delivered;
}

absl::StatusOr<v1::WorkHolder> WorkDelivery::SendToStage(const message::Message& message,
                                                         Open& open) {
  const message::Header& header = message.header;
  const bool not_here = parts_.leaving || parts_.drain.orders().pass_on;
  ONEPIECE_ASSIGN_OR_RETURN(
      const node::Delivered delivered,
      Send(message,
           node::Destination::Stage(header.app, header.stage, header.uid, not_here ? node_id_ : ""),
           open));
  return node::HolderAt(*parts_.view.routing(), header, delivered);
}

absl::Status WorkDelivery::SendToDatabase(message::Message message,
                                          const v1::UpdateJobRequest& timing, Open& open) {
  // The times go before the result, so that a client that sees SUCCEEDED sees every stage's times.
  if (const auto updated = parts_.records.Update(timing); !updated.ok()) {
    spdlog::warn("uid={} times of the last stage were not recorded: {}", timing.uid(),
                 base::Message(updated.status()));
  }
  message.header.kind = message::Kind::kResult;
  message.header.stage.clear();
  parts_.kept.Keep(message);
  const base::MonotonicTime deadline = message.header.deadline;
  const ResultWays ways{
      .send = [&](node::Destination target) { return Send(message, std::move(target), open); },
      .values = parts_.values,
      .spans = parts_.spans,
      .clock = parts_.clock};
  ONEPIECE_ASSIGN_OR_RETURN(
      const node::Delivered delivered,
      DeliverResult(message, *parts_.view.routing(), ways, base::Scaled(kDeliverTurn), deadline));
  // Until the database has stored the result it holds the job: if it dies, the result is sent
  // again.
  v1::UpdateJobRequest update;
  v1::WorkHolder& holder = *update.add_placed();
  holder = node::HolderAt(*parts_.view.routing(), message.header, delivered);
  parts_.kept.Placed(message.header, holder);
  parts_.updates.Report(message.header.uid, std::move(update));
  return absl::OkStatus();
}

absl::StatusOr<node::Delivered> WorkDelivery::SendKept(const message::Message& message) {
  const message::Header& header = message.header;
  const base::MonotonicTime deadline =
      std::min(header.deadline, parts_.clock.Now() + node::KeptLimit(message));
  const auto send = [&](node::Destination target) {
    target.patience = node::KeptPatience();
    return parts_.outbox.Deliver(message, target, deadline);
  };
  if (header.kind == message::Kind::kResult) {
    return DeliverResult(
        message, *parts_.view.routing(),
        {.send = send, .values = parts_.values, .spans = parts_.spans, .clock = parts_.clock},
        node::KeptPatience(), deadline);
  }
  return send(node::Destination::Stage(header.app, header.stage, header.uid));
}

}  // namespace onepiece::instance
