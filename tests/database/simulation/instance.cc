#include "tests/database/simulation/instance.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/node/work_holder.h"

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kInstanceUpkeep = 200ms;
constexpr Duration kTurn = 1s;
constexpr Duration kBegunLimit = 1s;
constexpr Duration kAskPause = 1s;
// Few, so that messages wait in rings, where nobody reports that they are.
constexpr std::size_t kMaxQueued = 1;

}  // namespace

void Instance::Start() {
  BeginLife();
  taken_.clear();
  ring_.clear();
  updates_.clear();
  working_ = false;
  delivering_ = 0;
  // The others borrow them.
  keeping_.reset();
  records_ = std::make_unique<Records>(id_, cluster_, *view_);
  keeping_ = std::make_unique<Keeping>(id_, cluster_, *view_, *records_);
  runtime::RequestSchedulerOptions options;
  options.max_queued = kMaxQueued;
  scheduler_ = std::make_unique<runtime::RequestScheduler>(
      options, std::make_unique<runtime::IndividualMode>(), world().clock());
  world().Later(id_, kInstanceUpkeep, [this] { Upkeep(); });
}

void Instance::Deposit(const message::Message& message, std::uint64_t number) {
  if (!taken_.insert(number).second) return;
  ring_.push_back(message);
  world().Later(id_, Duration::zero(), [this] { Pump(); });
}

// As WorkIntake::Pump: behind a full queue messages stay in the ring. An instance without a table
// does not know what its work is; the real one is in no route then.
void Instance::Pump() {
  if (view_->routing()->epoch() == 0) return;
  while (!ring_.empty() && scheduler_->WaitForRoom({}, world().Now())) {
    message::Message message = std::move(ring_.front());
    ring_.pop_front();
    TakeIn(std::move(message));
  }
}

// As WorkIntake::TakeIn.
void Instance::TakeIn(message::Message message) {
  const message::Header header = message.header;
  const auto table = view_->routing();
  runtime::WorkItem item{std::move(message), world().Now(), world().clock().WallNow(), {}};
  const auto pushed =
      scheduler_->Push(std::move(item), table->GraphOf(header.app).Predecessors(header.stage));
  if (!pushed.ok()) return Fail(header, pushed.status());
  using runtime::PushResult;
  const bool taken = *pushed == PushResult::kQueued || *pushed == PushResult::kHeld;
  world().Tell(id_ + (taken ? " takes " : " drops ") + header.stage + " from " + header.from +
               " attempt " + std::to_string(header.attempt) + " " + header.uid.ToString());
  if (!taken) return;
  cluster_.ledger.Taken(header, {id_, view_->self().incarnation()}, world().AddressOf(id_));
  Placed(header);
  if (!std::exchange(working_, true)) world().Spawn(id_, [this] { Work(); });
}

void Instance::Work() {
  while (auto item = scheduler_->Pop({}, world().Now())) {
    Pump();
    const base::MonotonicTime start = world().Now();
    const End end = Compute(*item);
    const std::string app = item->message.header.app;
    scheduler_->Done(app,
                     end == End::kComputed ? std::optional(world().Now() - start) : std::nullopt);
    const bool fails = end == End::kBroken && !scheduler_->IsFenced(*item);
    if (end == End::kCancelled || fails) {
      Fail(item->message.header,
           fails ? absl::InternalError("the device is lost") : absl::CancelledError("cancelled"));
    }
    if (end != End::kComputed) continue;
    cluster_.ledger.Computed(item->message.header);
    ++delivering_;
    world().Spawn(id_, [this, done = *std::move(item)] {
      Deliver(done);
      --delivering_;
    });
  }
  working_ = false;
}

Instance::End Instance::Compute(const runtime::WorkItem& item) {
  const message::Header& header = item.message.header;
  Begun(item);
  world().Tell(id_ + " computes " + header.stage + " attempt " + std::to_string(header.attempt) +
               " " + header.uid.ToString());
  const std::uint64_t steps = 1 + world().Pick(4);
  for (std::uint64_t step = 0; step < steps; ++step) {
    const base::MonotonicTime begin = world().Now();
    world().Sleep(world().Between(20ms, 300ms));
    if (step == 0) MaybeDie(item);
    // A process that stood still may have lost its device.
    if (world().Now() - begin > 1s && world().Chance(0.3)) return End::kBroken;
    if (scheduler_->IsCancelled(header.uid)) return End::kCancelled;
    if (scheduler_->IsFenced(item)) return End::kFenced;
  }
  return End::kComputed;
}

// Some jobs end whoever computes them.
void Instance::MaybeDie(const runtime::WorkItem& item) {
  const auto found = cluster_.poison.find(item.message.header.uid);
  if (found == cluster_.poison.end() || found->second != stage_) return;
  world().After(Duration::zero(), [this, life = world().At(id_).life] {
    if (!world().Listens({id_, life})) return;
    cluster_.ledger.Killed(id_);
    world().Kill(id_);
    world().After(world().Between(200ms, 4s), [this] {
      if (!world().At(id_).alive) Start();
    });
  });
  world().Sleep(1h);
}

// As WorkDelivery::Deliver.
void Instance::Deliver(const runtime::WorkItem& item) {
  const message::Header& header = item.message.header;
  std::string inputs;
  std::vector<std::string> parts;
  for (const message::Artifact& artifact : item.message.artifacts)
    parts.emplace_back(artifact.data.text());
  for (const std::string& part : parts) inputs += part;
  message::Message message;
  message.header = header;
  message.header.from = header.stage;
  message.header.deaths = 0;
  message.artifacts = {message::BytesArtifact(header.stage, "video/mp4", OutputOf(header, inputs))};
  std::set<std::string> delivered;
  while (!scheduler_->IsFenced(item)) {
    if (HandOn(item, message, delivered)) return Completed(item);
    if (world().Now() >= header.deadline || scheduler_->IsCancelled(header.uid)) {
      return Fail(header, absl::UnavailableError("nobody took it"));
    }
    world().Sleep(100ms);
  }
  world().Tell(id_ + " drops its outputs of " + header.stage + " attempt " +
               std::to_string(header.attempt) + " " + header.uid.ToString());
}

bool Instance::HandOn(const runtime::WorkItem& item, message::Message& message,
                      std::set<std::string>& delivered) {
  const auto table = view_->routing();
  message.header.routing_epoch = table->epoch();
  message.header.attempt = item.message.header.attempt;
  const auto successors = table->GraphOf(message.header.app).Successors(stage_);
  v1::UpdateJobRequest update;
  bool all = true;
  if (successors.empty()) {
    message.header.kind = message::Kind::kResult;
    all = HandOnTo("", message, update);
  }
  for (const std::string& next : successors) {
    if (delivered.contains(next)) continue;
    if (HandOnTo(next, message, update)) {
      delivered.insert(next);
    } else {
      all = false;
    }
  }
  if (all || update.placed_size() > 0) Report(message.header.uid, std::move(update));
  return all;
}

bool Instance::HandOnTo(const std::string& stage, message::Message& message,
                        v1::UpdateJobRequest& update) {
  message.header.stage = stage;
  keeping_->kept().Keep(message);
  const message::Header& header = message.header;
  const auto sent = keeping_->Deliver(message, kTurn, header.deadline);
  if (!sent.ok()) return false;
  v1::WorkHolder holder = node::HolderAt(*view_->routing(), header, sent->endpoint, sent->attempt);
  holder.set_routing_epoch(sent->routing_epoch);
  keeping_->kept().Placed(header, holder);
  *update.add_placed() = std::move(holder);
  return true;
}

// As JobReporter::WhenAnswered: keepers hear it when the record says who has the outputs.
void Instance::Completed(const runtime::WorkItem& item) {
  std::vector<message::Header> done;
  for (const message::Message& part : item.parts) done.push_back(part.header);
  if (item.parts.empty()) done.push_back(item.message.header);
  const auto waits = updates_.find(item.message.header.uid);
  if (waits == updates_.end() || waits->second.empty()) return TellKeepers(done);
  std::ranges::move(done, std::back_inserter(waits->second.back().completed));
}

void Instance::TellKeepers(const std::vector<message::Header>& completed) {
  for (const message::Header& header : completed) keeping_->Completed(header);
}

// As InstanceUpkeep.
void Instance::Upkeep() {
  Pump();  // A table has come, or a cancellation or a fence has dropped queued work.
  for (const auto& join : scheduler_->ExpireJoins()) Fail(join.header, join.why);
  for (const message::Header& branch : scheduler_->WaitingJoins(5s, 20)) Placed(branch);
  const auto table = view_->routing();
  auto parts = scheduler_->TakeJoins([&](const message::Header& header) {
    if (header.routing_epoch > table->epoch()) return false;
    const auto point = table->MeetingPoint(header.app, header.stage, header.uid);
    return point.has_value() && point->node_id() != id_;
  });
  for (auto& part : parts) {
    ++delivering_;
    world().Spawn(id_, [this, part = std::move(part)] {
      SendElsewhere(part);
      --delivering_;
    });
  }
  world().Later(id_, kInstanceUpkeep, [this] { Upkeep(); });
}

// As WorkDelivery::Forward.
void Instance::SendElsewhere(runtime::WorkItem part) {
  const message::Header came = part.message.header;
  message::Message message = std::move(part.message);
  message.header.attempt = came.attempt + 1;
  while (!scheduler_->IsFenced(came) && !scheduler_->IsCancelled(came.uid)) {
    message.header.routing_epoch = view_->routing()->epoch();
    const auto sent = keeping_->Deliver(message, kTurn, came.deadline);
    if (sent.ok()) {
      v1::WorkHolder holder =
          node::HolderAt(*view_->routing(), message.header, sent->endpoint, sent->attempt);
      holder.set_routing_epoch(sent->routing_epoch);
      keeping_->Moved(came, holder);
      v1::UpdateJobRequest update;
      *update.add_placed() = std::move(holder);
      return Report(came.uid, std::move(update));
    }
    if (world().Now() >= came.deadline) return;
    world().Sleep(100ms);
  }
}

void Instance::Placed(const message::Header& header) {
  v1::UpdateJobRequest update;
  *update.add_placed() = node::HolderAt(*view_->routing(), header, view_->self(), header.attempt);
  Report(header.uid, std::move(update));
}

void Instance::Begun(const runtime::WorkItem& item) {
  const message::Header& header = item.message.header;
  cluster_.ledger.Begun(header, {id_, view_->self().incarnation()});
  v1::UpdateJobRequest update;
  v1::JobProgress& progress = *update.mutable_progress();
  *progress.mutable_holder() =
      node::HolderAt(*view_->routing(), header, view_->self(), header.attempt);
  progress.mutable_holder()->set_begun(true);
  const auto add = [&](const message::Header& each) {
    v1::WorkHolder& holder = *update.add_placed();
    holder = node::HolderAt(*view_->routing(), each, view_->self(), each.attempt);
    holder.set_begun(true);
  };
  for (const message::Message& part : item.parts) add(part.header);
  if (item.parts.empty() && header.attempt > 0) add(header);
  Report(header.uid, std::move(update));
  if (header.attempt == 0) return;
  const base::MonotonicTime until = world().Now() + kBegunLimit;
  while (updates_.contains(header.uid) && world().Now() < until) world().Sleep(10ms);
}

// As JobUpdates::Fail.
void Instance::Fail(const message::Header& header, const absl::Status& status) {
  v1::UpdateJobRequest update;
  *update.mutable_ended_by() =
      node::HolderAt(*view_->routing(), header, view_->self(), header.attempt);
  if (absl::IsCancelled(status)) {
    update.set_cancelled(true);
  } else {
    const std::string reason = base::GetReason(status).reason;
    update.mutable_failed()->set_reason(reason.empty() ? "STAGE_FAILED" : reason);
    update.mutable_failed()->set_message(base::Message(status));
  }
  Report(header.uid, std::move(update));
}

void Instance::Report(const base::Uid& uid, v1::UpdateJobRequest update) {
  update.set_uid(uid.ToString());
  const bool idle = !updates_.contains(uid);
  updates_[uid].push_back({std::move(update), {}});
  if (idle) world().Spawn(id_, [this, uid] { Tell(uid); });
}

// As JobReporter: in order for each job, and again until the answer is definite. A job whose end is
// proposed is asked for until the end is settled.
void Instance::Tell(const base::Uid& uid) {
  Duration pause = 200ms;
  while (!updates_.at(uid).empty()) {
    const v1::UpdateJobRequest update = updates_.at(uid).front().request;
    const auto record = records_->Update(update);
    if (record.ok()) Answered(uid, *record);
    const absl::Status& status = record.status();
    const bool is_open = record.ok() && !job::IsTerminal(record->job().state());
    const bool proposed = is_open && record->has_proposed();
    const bool is_end = update.has_failed() || update.cancelled();
    const bool definite = status.ok() || absl::IsNotFound(status) ||
                          absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
    if (!definite || (proposed && is_end)) {
      world().Sleep(world().Between(pause / 2, pause));
      pause = std::min<Duration>(2 * pause, 3s);
      continue;
    }
    TellKeepers(updates_.at(uid).front().completed);
    updates_.at(uid).pop_front();
    pause = 200ms;
    if (!proposed || !updates_.at(uid).empty()) continue;
    const base::MonotonicTime asks = world().Now() + kAskPause;
    while (updates_.at(uid).empty() && world().Now() < asks) world().Sleep(50ms);
    v1::UpdateJobRequest question;
    question.set_uid(uid.ToString());
    if (updates_.at(uid).empty()) updates_.at(uid).push_back({std::move(question), {}});
  }
  updates_.erase(uid);
}

// As JobReporter::Send and instance::FenceBy.
void Instance::Answered(const base::Uid& uid, const v1::JobRecord& record) {
  const v1::Job::State state = record.job().state();
  const bool is_over = job::IsTerminal(state);
  if (is_over && state != v1::Job::SUCCEEDED) scheduler_->Cancel(uid);
  if (is_over) scheduler_->DropJoins(uid, record.run());
  if (is_over || record.has_proposed()) return;
  scheduler_->FenceRun(uid, record.run());
  for (const v1::WorkHolder& holder : record.holders()) {
    if (holder.node_id() == id_ || holder.attempt() == 0) continue;
    message::Header edge;
    edge.uid = uid;
    edge.run = record.run();
    edge.stage = holder.stage();
    edge.from = holder.from();
    scheduler_->Fence(edge, holder.attempt());
  }
}

std::string Instance::Left() const {
  std::string left;
  const auto add = [&](const char* what, std::size_t count) {
    if (count > 0) left += std::string(" ") + std::to_string(count) + " " + what;
  };
  add("messages kept", keeping_->kept().items());
  add("messages in the ring", ring_.size());
  add("items in the queue", scheduler_->held() - scheduler_->joins());
  add("branches that wait", scheduler_->joins());
  add("deliveries", delivering_);
  add("words for keepers", keeping_->pending());
  add("updates", updates_.size());
  return left;
}

}  // namespace onepiece::simulation
