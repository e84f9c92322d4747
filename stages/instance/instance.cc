#include "stages/instance/instance.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/rpc/status.h"
#include "spdlog/spdlog.h"
#include "stages/instance/device_use.h"
#include "stages/runtime/plugin_stages.h"
#include "stages/runtime/stage_runner.h"

namespace onepiece::instance {
namespace {

constexpr auto kPumpWait = std::chrono::milliseconds(500);
// How long one job may look for a taker before the jobs behind it get their turn.
constexpr auto kDeliverTurn = std::chrono::seconds(1);
// How often jobs that wait for a branch are looked after.
constexpr auto kUpkeepInterval = std::chrono::milliseconds(100);
// While so many wait to be delivered no more of the queue is passed on: results take turns with it.
constexpr std::size_t kPassedOnAtOnce = 8;
// How long what the instance has begun may take to find another place when it leaves; below the
// time after which a supervisor kills it. And the share of it for what nobody has begun.
constexpr auto kLeaveLimit = std::chrono::seconds(8);
constexpr auto kSendLeftLimit = std::chrono::seconds(2);
// How long it waits to be gone from its own routing table then, and how often it looks.
constexpr auto kUnroutedLimit = std::chrono::milliseconds(500);
constexpr auto kUnroutedPoll = std::chrono::milliseconds(10);
// How long what it holds may take when it leaves a workflow set without having been drained.
constexpr auto kLeaveSetLimit = std::chrono::seconds(60);

runtime::RequestScheduler::Options SchedulerOptions(const v1::InstanceConfig& config,
                                                    const Drain& drain) {
  runtime::RequestScheduler::Options options;
  options.hand_over = [&drain] { return drain.orders().hand_over; };
  if (config.max_queued_jobs() > 0)
    options.max_queued = static_cast<std::size_t>(config.max_queued_jobs());
  return options;
}

int Workers(const v1::InstanceConfig& config) { return std::max(1, config.workers()); }

// Nobody took it now; later somebody may.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

void ExportParked(const runtime::ModelStore::Stats& stats, telemetry::Metrics& metrics) {
  metrics
      .Gauge("onepiece_instance_parked_bytes", "Weights of earlier roles that are kept in memory",
             {})
      .Set(static_cast<double>(stats.parked_bytes));
  telemetry::RaiseTo(metrics.Counter("onepiece_instance_parked_hits_total",
                                     "Models that were still in memory when they were wanted", {}),
                     static_cast<double>(stats.hits));
}

void SetDuration(google::protobuf::Duration* out, base::Duration value) {
  const auto ns = std::max<std::int64_t>(0, value.count());
  out->set_seconds(ns / 1'000'000'000);
  out->set_nanos(static_cast<std::int32_t>(ns % 1'000'000'000));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Instance>> Instance::Open(
    const v1::InstanceConfig& config, fabric::Fabric& fabric, telemetry::Metrics& metrics,
    telemetry::Spans& spans, base::Clock& clock, base::Duration hand_over_after) {
  std::unique_ptr<Instance> instance(
      new Instance(config, fabric, metrics, spans, clock, hand_over_after));
  node::InboxOptions options;
  options.label = config.node().node_id();
  node::ApplyRingConfig(config.ring(), options);
  options.block_hook = PinBlocks(instance->DeviceName());
  options.metrics = &metrics;
  metrics.OnScrape(
      [device = instance->DeviceName(), &metrics] { ExportDeviceMemory(device, metrics); });
  ONEPIECE_ASSIGN_OR_RETURN(instance->inbox_,
                            node::Inbox::Open(fabric, instance->view_, options, clock));
  return instance;
}

Instance::Instance(const v1::InstanceConfig& config, fabric::Fabric& fabric,
                   telemetry::Metrics& metrics, telemetry::Spans& spans, base::Clock& clock,
                   base::Duration hand_over_after)
    : config_(config),
      fabric_(fabric),
      metrics_(metrics),
      spans_(spans),
      clock_(clock),
      drain_(clock, hand_over_after) {}

Instance::~Instance() { Leave(); }

void Instance::Join(const std::string& address, const std::string& metrics_address) {
  node::NodeAgentOptions agent;
  agent.role = v1::INSTANCE;
  agent.node_id = config_.node().node_id();
  agent.nodemanagers = {config_.node().nodemanagers().begin(), config_.node().nodemanagers().end()};
  agent.address = address;
  agent.metrics_address = metrics_address;
  agent.workflow_set = config_.node().workflow_set();
  {
    const base::MutexLock lock(publish_mutex_);
    workflow_set_ = agent.workflow_set;
  }
  agent.pinned_stage = config_.pinned_stage();
  agent_ = std::make_unique<node::NodeAgent>(agent, view_);

  node::OutboxOptions outbox;
  outbox.node_id = agent.node_id;
  outbox.metrics = &metrics_;
  outbox.spans = &spans_;
  outbox_ = node::Outbox::Create(fabric_, view_, outbox, clock_);
  values_ = std::make_unique<values::ValuePeers>(fabric_, agent.node_id, clock_);
  records_ = std::make_unique<node::JobRecords>(view_);
  reporter_ = std::make_unique<JobReporter>(
      [this](const v1::UpdateJobRequest& request) { return records_->Update(request); },
      [this](const base::Uid& uid) { scheduler_->Cancel(uid); }, clock_);

  scheduler_ = std::make_unique<runtime::RequestScheduler>(
      SchedulerOptions(config_, drain_), std::make_unique<runtime::IndividualMode>(), clock_);
  deliver_ = std::make_unique<runtime::ResultDeliver>(
      2, [this](runtime::FinishedWork work) { return Deliver(std::move(work)); }, clock_);
  tasks_ = std::make_unique<runtime::TaskManager>(
      runtime::StagesFromPlugins(config_.plugin_dir()), *scheduler_, *this,
      [this](const runtime::TaskStatus& status) { StatusChanged(status); }, clock_,
      config_.parked_bytes());
  idle_work_ = std::make_unique<IdleWork>(
      IdleWorkOptions{{config_.idle_work().begin(), config_.idle_work().end()},
                      config_.node().data_dir()},
      clock_);
  metrics_.OnScrape([this] {
    stage_metrics_.Export(tasks_->assignment().stage, tasks_->Metrics(), metrics_);
    ExportParked(tasks_->parked(), metrics_);
  });

  meter_ = MeterOf(DeviceName());
  load_since_ = clock_.Now();
  agent_->SetLoadSource([this] { return Load(); });
  agent_->OnRouting([this](const std::shared_ptr<const node::Routing>&) { Publish(); });
  agent_->OnAssignment([this](const v1::Assignment& assignment) { Assign(assignment); });
  joined_ = true;  // From here on other threads look at what was made above.
  agent_->Start();
  pump_ = std::jthread([this](const std::stop_token& stop) { Pump(stop); });
  upkeep_ = std::jthread([this](const std::stop_token& stop) { Upkeep(stop); });
}

void Instance::Rest(const std::stop_token& stop, base::Duration duration) {
  base::Mutex mutex;
  base::MutexLock lock(mutex);
  base::CondVar nobody;
  clock_.WaitUntil(nobody, lock, stop, clock_.Now() + duration, [] { return false; });
}

// Senders that have not heard of it yet would fill a ring that nobody empties.
void Instance::AwaitUnrouted() {
  const auto until = clock_.Now() + base::Scaled(kUnroutedLimit);
  const auto routed = [this] {
    const auto table = routing();
    const auto assignment = tasks_->assignment();
    return std::ranges::any_of(assignment.models, [&](const runtime::AppModel& model) {
      return std::ranges::any_of(
          table->Instances(model.app, assignment.stage),
          [&](const v1::Endpoint& endpoint) { return endpoint.node_id() == node_id(); });
    });
  };
  while (routed() && clock_.Now() < until) Rest({}, kUnroutedPoll);
}

void Instance::Leave() {
  if (!joined_ || leaving_.exchange(true)) return;
  // What runs ends at its next step boundary, and goes on elsewhere where it can.
  std::vector<runtime::WorkItem> queued = scheduler_->Close();
  {
    // Out of the routes, but alive: the jobs that it still holds are not lost meanwhile.
    const base::MutexLock lock(publish_mutex_);
    agent_->SetState({.detail = "leaving", .assignment_epoch = tasks_->status().epoch});
  }
  AwaitUnrouted();
  pump_ = {};
  upkeep_ = {};
  while (true) {
    auto received = inbox_->Receive(clock_.Now());
    if (!received.ok()) break;
    TakeIn(std::move(*received));
  }
  inbox_->Close();
  std::ranges::move(queued, std::back_inserter(left_));
  for (auto& part : scheduler_->TakeJoins([](const message::Header&) { return true; }))
    left_.push_back(std::move(part));
  {
    // Whatever a peer that hangs has to do with it, this ends.
    const std::jthread closer([this](const std::stop_token& stop) {
      Rest(stop, base::Scaled(kLeaveLimit));
      outbox_->Close();
    });
    SendLeft();
    const base::MutexLock lock(assign_mutex_);
    idle_work_->Stop();
    tasks_->Assign({});
    deliver_->Close();  // It stays: reports go on saying what is held.
  }
  agent_->Stop();
  reporter_.reset();
}

// Work that nobody has begun goes to another instance of the stage, if there is one.
void Instance::SendLeft() {
  const auto until = clock_.Now() + base::Scaled(kSendLeftLimit);
  for (const auto& item : left_) {
    const message::Header& header = item.message.header;
    const bool elsewhere =
        routing()->MeetingPoint(header.app, header.stage, header.uid, node_id()).has_value();
    if (!elsewhere || clock_.Now() >= until || !Forward(item).ok()) FailStopped(header);
  }
  left_.clear();
}

runtime::StageAssignment Instance::StageOf(const v1::Assignment& assignment) const {
  const auto& spec = assignment.stage();
  runtime::StageAssignment next;
  next.stage = spec.stage();
  next.plugin = spec.plugin();
  next.load.device = DeviceName();
  next.load.threads = std::max(1, spec.threads());
  if (!spec.precision().empty()) next.load.precision = spec.precision();
  for (int i = 0; i < assignment.app_ids_size(); ++i) {
    // A NodeManager that knows one model for each stage says no others.
    const auto& model = i < assignment.models_size() ? assignment.models(i) : spec.model();
    const auto folder = std::filesystem::path(config_.model_root()) / model;
    next.models.push_back({assignment.app_ids(i), model.empty() ? "" : folder.string()});
  }
  next.workers = Workers(config_);
  next.epoch = assignment.epoch();
  return next;
}

void Instance::Assign(const v1::Assignment& assignment) {
  const base::MutexLock lock(assign_mutex_);
  if (leaving_) return;
  const bool idle =
      assignment.stage().stage().empty() && !assignment.draining() && !assignment.removed();
  if (!idle) idle_work_->Stop();
  const std::string& set =
      assignment.workflow_set().empty() ? config_.node().workflow_set() : assignment.workflow_set();
  // Only this thread changes it. The routing stays the old set's until this call returns.
  if (set != CurrentSet()) LeaveSet(assignment.epoch());
  {
    const base::MutexLock publish(publish_mutex_);
    workflow_set_ = set;
  }
  if (assignment.draining()) {
    drain_.Begin(assignment.epoch());
  } else {
    drain_.End();
  }
  tasks_->Assign(StageOf(assignment));
  if (assignment.removed()) tasks_->DropParked();
  if (idle) idle_work_->Start();
  leaving_set_ = false;
  Publish();
}

void Instance::LeaveSet(std::uint64_t epoch) {
  leaving_set_ = true;
  Publish();
  drain_.Begin(epoch);
  const auto until = clock_.Now() + base::Scaled(kLeaveSetLimit);
  while (!leaving_ && clock_.Now() < until && (!drain_.drained() || reporter_->pending() > 0))
    Rest({}, kUnroutedPoll);
  std::vector<runtime::WorkItem> late =
      scheduler_->TakeJoins([](const message::Header&) { return true; });
  while (auto item = scheduler_->Take()) late.push_back(*std::move(item));
  auto former = std::make_shared<FormerSet>(routing(), clock_);
  for (const auto& item : late) former->Fail(item.message.header, node_id());
  const base::MutexLock lock(former_mutex_);
  former_ = std::move(former);
}

bool Instance::OthersServe(const node::Routing& table, const std::string& app,
                           const std::string& stage) const {
  return std::ranges::any_of(table.Instances(app, stage), [&](const v1::Endpoint& endpoint) {
    return endpoint.node_id() != node_id();
  });
}

bool Instance::OthersServeAll() const {
  const auto table = routing();
  const auto assignment = tasks_->assignment();
  return std::ranges::all_of(assignment.models, [&](const runtime::AppModel& model) {
    return OthersServe(*table, model.app, assignment.stage);
  });
}

// In the order in which a message passes them, so that none slips through.
std::size_t Instance::Held() const {
  const std::size_t arriving = inbox_->stats().slots_used + (pump_idle_ ? 0 : 1);
  const std::size_t here = scheduler_->held();
  return arriving + here + deliver_->held();
}

void Instance::LookAfterDrain() {
  if (!drain_.active()) return;
  const bool changed = drain_.Look(Held(), OthersServeAll());
  // Never waits for a taker: this thread has other duties.
  for (std::size_t left = drain_.orders().pass_on ? scheduler_->queued() : 0;
       left > 0 && deliver_->held() < kPassedOnAtOnce; --left) {
    auto item = scheduler_->Take();
    if (!item) break;
    deliver_->Add({*std::move(item), {}, runtime::WrongStage(), {}});
  }
  if (changed) Publish();
}

void Instance::RetryFailedModels() {
  if (!assign_mutex_.TryLock()) return;
  const base::MutexLock lock(assign_mutex_, std::adopt_lock);
  tasks_->RetryFailed();
}

void Instance::StatusChanged(const runtime::TaskStatus& status) {
  if (!status.error.ok()) spdlog::error("loading failed: {}", base::Message(status.error));
  Publish();
}

std::string Instance::CurrentSet() {
  const base::MutexLock lock(publish_mutex_);
  return workflow_set_;
}

void Instance::Publish() {
  const base::MutexLock lock(publish_mutex_);
  if (leaving_) return;
  const runtime::TaskStatus status = tasks_->status();
  node::NodeStatus said{.assignment_epoch = status.epoch};
  if (!status.error.ok()) said.detail = "loading failed: " + base::Message(status.error);
  said.load_failed = !status.error.ok();
  if (leaving_set_) {
    // Neither assignment is served now, and that it is done here does not mean the new one's drain.
    said.detail = "leaves workflow set " + workflow_set_;
    return agent_->SetState(std::move(said));
  }
  switch (status.state) {
    case runtime::TaskState::kServing:
      // Before it knows where results go it must get no work.
      if (routing()->table().workflow_set() == workflow_set_) {
        said.state = v1::Node::READY;
        said.served_apps = status.apps;
      } else if (said.detail.empty()) {
        said.detail = "waits for the routing of workflow set " + workflow_set_;
      }
      break;
    case runtime::TaskState::kFailed:
      break;
    case runtime::TaskState::kLoading:
      said.detail = "loading";
      break;
    case runtime::TaskState::kIdle:
      said.detail = "idle";
      break;
  }
  if (const auto drained = drain_.drained()) {
    said.drained = true;
    said.assignment_epoch = *drained;
  }
  agent_->SetState(std::move(said));
}

v1::NodeLoad Instance::Load() {
  const auto now = clock_.Now();
  const auto busy = tasks_->busy();
  v1::NodeLoad load;
  if (now > load_since_) {
    const double share = static_cast<double>((busy - load_busy_).count()) /
                         (static_cast<double>((now - load_since_).count()) * Workers(config_));
    load.set_utilization(std::clamp(share, 0.0, 1.0));
    load.set_utilization_source(v1::WORKERS);
  }
  load_since_ = now;
  load_busy_ = busy;
  AddDevice(load);
  load.set_idle_work(idle_work_->status());
  load.set_sample_unix_ms(base::ToUnixMs(clock_.WallNow()));
  load.set_workers(Workers(config_));
  const auto ring = inbox_->stats();
  const auto count = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  const std::size_t running = tasks_->running().size();
  load.set_queued_jobs(count(scheduler_->queued()));
  load.set_running_jobs(count(running));
  load.set_held_jobs(count(scheduler_->held() + deliver_->held()));
  load.set_no_progress_ms(
      std::chrono::duration_cast<std::chrono::milliseconds>(tasks_->no_progress()).count());
  load.set_ring_slots(count(ring.slots));
  load.set_ring_slots_used(count(ring.slots_used));
  counts_.AddTo(load);
  return load;
}

void Instance::AddDevice(v1::NodeLoad& load) {
  const bool is_cpu = DeviceName() == "cpu";
  device::DeviceReading reading;
  if (is_cpu) {
    reading = device::ReadHost();
  } else if (meter_ != nullptr) {
    reading = meter_->Read();
    const bool fine = meter_->counts_multiprocessors();
    if (const auto busy = fine ? reading.sm_active : reading.kernel_active) {
      load.set_utilization(*busy);
      load.set_utilization_source(fine ? v1::SM_ACTIVE : v1::GPU_COARSE);
    }
  }
  if (const auto memory = MemoryOf(DeviceName()); memory.ok()) {
    load.set_memory_bytes(memory->used_bytes);
    // CUDA knows where NVML does not; of the cpu this is the process's share.
    if (!is_cpu && !reading.memory_bytes) {
      reading.memory_used_bytes = memory->used_bytes;
      reading.memory_bytes = memory->total_bytes;
    }
  }
  *load.add_devices() = MakeDeviceLoad(DeviceName(), reading);
}

void Instance::Pump(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (!scheduler_->WaitForRoom(stop, clock_.Now() + kPumpWait)) continue;
    auto received = inbox_->Receive(clock_.Now() + kPumpWait);
    pump_idle_ = !received.ok();
    if (received.ok()) {
      TakeIn(std::move(*received));
    } else if (absl::IsCancelled(received.status())) {
      return;
    }
  }
}

void Instance::TakeIn(node::Received received) {
  const auto& header = received.message.header;
  if (header.kind != message::Kind::kWork) {
    spdlog::warn("uid={} message of kind {} from {} is not for an instance; dropped",
                 header.uid.ToString(), static_cast<int>(header.kind), header.sender);
    return;
  }
  if (FailedForFormerSet(header)) return;
  runtime::WorkItem item{std::move(received.message), received.arrival_wall, {}};
  if (!tasks_->IsAssigned(item.message.header.stage, item.message.header.app) ||
      drain_.orders().pass_on) {
    // Sent by a routing table that is no longer true.
    return deliver_->Submit({std::move(item), {}, runtime::WrongStage(), {}});
  }
  const message::Header kept = item.message.header;
  const auto table = routing();
  const auto admission = scheduler_->Push(item, table->GraphOf(kept.app).Predecessors(kept.stage));
  if (!admission.ok()) return Fail(kept.uid, admission.status(), kept.stage);
  if (*admission == runtime::RequestScheduler::Admission::kQueued ||
      *admission == runtime::RequestScheduler::Admission::kHeld) {
    // The sender says so too, but it may die before it has: then nobody must take the job for lost.
    v1::UpdateJobRequest placed;
    *placed.add_placed() = Holder(*table, kept, view_.self(), kept.attempt);
    reporter_->Report(kept.uid, std::move(placed));
  } else if (*admission == runtime::RequestScheduler::Admission::kClosed) {
    left_.push_back(std::move(item));
  }
}

bool Instance::FailedForFormerSet(const message::Header& header) {
  const base::MutexLock lock(former_mutex_);
  if (!former_ || !former_->Sent(header, *routing())) return false;
  former_->Fail(header, node_id());
  return true;
}

void Instance::Upkeep(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Rest(stop, kUpkeepInterval);
    for (const auto& join : scheduler_->ExpireJoins())
      Fail(join.header.uid, join.why, join.header.stage);
    SendPartsElsewhere();
    LookAfterDrain();
    RetryFailedModels();
  }
}

void Instance::SendPartsElsewhere() {
  const auto table = routing();
  auto parts = scheduler_->TakeJoins([&](const message::Header& header) {
    // A sender whose table is newer knows better where its job meets.
    if (header.routing_epoch > table->epoch()) return false;
    const auto point = table->MeetingPoint(header.app, header.stage, header.uid);
    return point.has_value() && point->node_id() != node_id();
  });
  for (auto& part : parts) deliver_->Add({std::move(part), {}, runtime::WrongStage(), {}});
}

v1::WorkHolder Instance::Holder(const node::Routing& table, const message::Header& header,
                                const v1::Endpoint& endpoint, std::uint32_t attempt) {
  v1::WorkHolder holder;
  holder.set_node_id(endpoint.node_id());
  holder.set_incarnation(endpoint.incarnation());
  holder.set_stage(header.stage);
  holder.set_stage_index(table.StageIndex(header.app, header.stage).value_or(0));
  holder.set_attempt(attempt);
  holder.set_from(header.from);
  // The last stage hands on to a database.
  const auto next = table.GraphOf(header.app).Successors(header.stage).size();
  holder.set_successors(std::max(1, static_cast<int>(next)));
  return holder;
}

void Instance::Started(const runtime::WorkItem& item) { Progressed(item, 0, 0); }

void Instance::Progressed(const runtime::WorkItem& item, int step, int steps) {
  v1::JobProgress progress;
  *progress.mutable_holder() =
      Holder(*routing(), item.message.header, view_.self(), item.message.header.attempt);
  progress.set_step(step);
  progress.set_steps(steps);
  reporter_->ReportProgress(item.message.header.uid, std::move(progress));
}

void Instance::Finished(runtime::FinishedWork work) {
  if (base::GetReason(work.outputs.status()).reason != runtime::kWrongStage) Observe(work);
  deliver_->Submit(std::move(work));
}

void Instance::ModelLoaded(const std::string& stage, const std::string& model_dir,
                           base::Duration time) {
  for (const auto& model : tasks_->assignment().models) {
    if (model.model_dir == model_dir) counts_.Loaded(stage, model.app, time);
  }
  metrics_
      .Histogram("onepiece_stage_load_seconds", "Time to load a stage with a model",
                 telemetry::DurationBuckets(), {{"stage", stage}})
      .Observe(base::ToSeconds(time));
}

void Instance::Observe(const runtime::FinishedWork& work) {
  const auto& header = work.item.message.header;
  const bool ok = work.outputs.ok();
  const bool handed_over = base::GetReason(work.outputs.status()).reason == runtime::kHandedOver;
  if (!absl::IsCancelled(work.outputs.status())) {
    counts_.Count(header, UnitsOf(*routing(), work.item.message), work.timing,
                  ok            ? WorkCounts::Outcome::kDone
                  : handed_over ? WorkCounts::Outcome::kHandedOver
                                : WorkCounts::Outcome::kFailed);
  }
  const telemetry::Labels labels = {{"stage", header.stage}};
  metrics_
      .Histogram("onepiece_stage_compute_seconds",
                 "Time that a job spent in the stage's computation", telemetry::DurationBuckets(),
                 labels)
      .Observe(base::ToSeconds(work.timing.compute));
  metrics_
      .Histogram("onepiece_stage_queue_seconds", "Time that a job waited in the instance's queue",
                 telemetry::DurationBuckets(), labels)
      .Observe(base::ToSeconds(work.timing.queued));
  metrics_.Counter("onepiece_stage_busy_seconds_total", "Computing time of all workers", labels)
      .Increment(base::ToSeconds(work.timing.compute));
  metrics_
      .Counter("onepiece_stage_jobs_total", "Jobs that left the stage, by result",
               {{"stage", header.stage},
                {"result", ok ? "ok" : absl::StatusCodeToString(work.outputs.status().code())}})
      .Increment();

  const auto start = work.item.arrival_time + work.timing.queued;
  const auto record = [&](const char* operation, base::WallTime from, base::WallTime to) {
    v1::Span span;
    span.set_operation(operation);
    span.set_stage(header.stage);
    span.set_start_unix_ns(from.time_since_epoch().count());
    span.set_end_unix_ns(to.time_since_epoch().count());
    spans_.Record(header.uid, std::move(span));
  };
  record("queue", work.item.arrival_time, start);
  record("compute", start, start + work.timing.compute);
}

std::optional<runtime::FinishedWork> Instance::Deliver(runtime::FinishedWork work) {
  const message::Header& header = work.item.message.header;
  if (FailedForFormerSet(header)) return std::nullopt;
  const std::string reason = base::GetReason(work.outputs.status()).reason;
  const bool handed_over = reason == runtime::kHandedOver;
  const bool elsewhere = handed_over || reason == runtime::kWrongStage;
  if (!work.outputs.ok() && !elsewhere) {
    Fail(header.uid, work.outputs.status(), header.stage);
    return std::nullopt;
  }
  if (elsewhere && StaysHere(header)) {
    const auto returned =
        scheduler_->Return(work.item, routing()->GraphOf(header.app).Predecessors(header.stage));
    if (!returned.ok()) Fail(header.uid, returned.status(), header.stage);
    if (!returned.ok() || *returned) return std::nullopt;
  }
  const absl::Status sent = elsewhere ? Forward(work.item) : HandOn(work);
  if (sent.ok() && handed_over)
    spdlog::info("uid={} stage={} goes on elsewhere", header.uid.ToString(), header.stage);
  if (sent.ok()) return std::nullopt;
  if (handed_over && leaving_) {
    FailStopped(header);
    return std::nullopt;
  }
  const bool again = IsPassing(sent) && !leaving_ && clock_.WallNow() < header.deadline &&
                     !scheduler_->IsCancelled(header.uid);
  if (again) return work;
  Fail(header.uid, sent, header.stage);
  return std::nullopt;
}

absl::Status Instance::CheckStage(const node::Routing& table, const message::Header& header) {
  if (table.StageIndex(header.app, header.stage)) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "UNKNOWN_APP",
                         "application " + header.app + " with this stage no longer exists");
}

// Nobody else takes it any more, but this instance still can. What the drain was told of others may
// be out of date by now.
bool Instance::StaysHere(const message::Header& header) const {
  if (!drain_.active() || OthersServe(*routing(), header.app, header.stage)) return false;
  const auto apps = tasks_->status().apps;
  return tasks_->IsAssigned(header.stage, header.app) &&
         std::find(apps.begin(), apps.end(), header.app) != apps.end();
}

absl::Status Instance::Forward(const runtime::WorkItem& item) {
  const auto table = routing();
  ONEPIECE_RETURN_IF_ERROR(CheckStage(*table, item.message.header));
  std::vector<message::Message> messages = item.parts;
  if (messages.empty()) messages.push_back(item.message);
  v1::UpdateJobRequest update;
  for (message::Message& message : messages) {
    // Another attempt: it is no second copy to whoever had it before, should it come back, and the
    // record believes the later holder.
    message.header.attempt = item.message.header.attempt + 1;
    message.header.routing_epoch = table->epoch();
    ONEPIECE_ASSIGN_OR_RETURN(*update.add_placed(), SendToStage(message));
  }
  reporter_->Report(item.message.header.uid, std::move(update));
  return absl::OkStatus();
}

absl::Status Instance::HandOn(runtime::FinishedWork& work) {
  const auto table = routing();
  message::Message message;
  message.header = work.item.message.header;
  ONEPIECE_RETURN_IF_ERROR(CheckStage(*table, message.header));
  v1::UpdateJobRequest update;
  update.set_uid(message.header.uid.ToString());
  update.mutable_timing()->set_stage(message.header.stage);
  update.mutable_timing()->set_node(node_id());
  SetDuration(update.mutable_timing()->mutable_transfer(), work.timing.transfer);
  SetDuration(update.mutable_timing()->mutable_queued(), work.timing.queued);
  SetDuration(update.mutable_timing()->mutable_compute(), work.timing.compute);

  message.header.routing_epoch = table->epoch();
  message.header.from = message.header.stage;
  message.parameters = work.item.message.parameters;
  const auto successors = table->GraphOf(message.header.app).Successors(message.header.stage);
  if (successors.empty()) AddSha256(*work.outputs);
  message.artifacts = *work.outputs;
  if (successors.empty()) return SendToDatabase(std::move(message), update);
  // A stage that takes nothing now does not hold up the others.
  absl::Status failed;
  for (const std::string& next : successors) {
    if (work.delivered.contains(next)) continue;
    message.header.stage = next;
    auto placed = SendToStage(message);
    if (placed.ok()) {
      work.delivered.insert(next);
      *update.add_placed() = *std::move(placed);
    } else if (failed.ok() || IsPassing(failed)) {
      failed = placed.status();
    }
  }
  if (failed.ok() || update.placed_size() > 0)
    reporter_->Report(message.header.uid, std::move(update));
  return failed;
}

absl::StatusOr<v1::WorkHolder> Instance::SendToStage(const message::Message& message) {
  const message::Header& header = message.header;
  node::Destination target = node::Destination::Stage(
      header.app, header.stage, header.uid, leaving_ || drain_.orders().pass_on ? node_id() : "");
  target.patience = base::Scaled(kDeliverTurn);
  ONEPIECE_ASSIGN_OR_RETURN(const node::Delivered delivered,
                            outbox_->Deliver(message, target, DeadlineOf(header)));
  return Holder(*routing(), header, delivered.endpoint, delivered.attempt);
}

absl::Status Instance::SendToDatabase(message::Message message,
                                      const v1::UpdateJobRequest& timing) {
  // Before the result, so that a client that sees SUCCEEDED sees every stage's times too.
  if (const auto updated = records_->Update(timing); !updated.ok()) {
    spdlog::warn("uid={} times of the last stage were not recorded: {}", timing.uid(),
                 base::Message(updated.status()));
  }
  message.header.kind = message::Kind::kResult;
  const std::string stage = std::exchange(message.header.stage, "");
  const base::MonotonicTime deadline = DeadlineOf(message.header);
  auto delivered = PutResult(message, *routing(), *values_, spans_, clock_, deadline);
  if (!delivered.has_value()) {
    node::Destination target = node::Destination::DatabasesFor(message.header.uid);
    target.patience = base::Scaled(kDeliverTurn);
    ONEPIECE_ASSIGN_OR_RETURN(delivered, outbox_->Deliver(message, target, deadline));
  }
  // Until it has stored the result, that database holds the job: its death is the job's loss.
  v1::UpdateJobRequest update;
  v1::WorkHolder& holder = *update.add_placed();
  holder.set_node_id(delivered->endpoint.node_id());
  holder.set_incarnation(delivered->endpoint.incarnation());
  holder.set_attempt(delivered->attempt);
  holder.set_from(stage);
  holder.set_stage(stage);
  holder.set_stage_index(routing()->StageIndex(message.header.app, stage).value_or(0) + 1);
  reporter_->Report(message.header.uid, std::move(update));
  return absl::OkStatus();
}

base::MonotonicTime Instance::DeadlineOf(const message::Header& header) const {
  return clock_.Now() + (header.deadline - clock_.WallNow());
}

void Instance::Fail(const base::Uid& uid, const absl::Status& status, const std::string& stage) {
  v1::UpdateJobRequest request;
  auto* error = request.mutable_failed();
  const std::string reason = base::GetReason(status).reason;
  if (absl::IsCancelled(status) && leaving_) {
    error->set_reason("INSTANCE_STOPPED");
    error->set_message("instance " + node_id() + " was stopped while it computed stage " + stage);
  } else if (absl::IsCancelled(status)) {
    request.clear_failed();
    request.set_cancelled(true);
  } else {
    error->set_reason(reason.empty() ? "STAGE_FAILED" : reason);
    error->set_message("stage " + stage + " on " + node_id() + ": " + base::Message(status));
  }
  spdlog::info("uid={} stage={} ended: {}", uid.ToString(), stage, base::Message(status));
  reporter_->Report(uid, std::move(request));
}

void Instance::FailStopped(const message::Header& header) {
  Fail(header.uid, absl::CancelledError("the instance was stopped"), header.stage);
}

grpc::Status Instance::GetInstance(grpc::ServerContext*, const v1::GetInstanceRequest*,
                                   v1::Instance* response) {
  response->set_node_id(config_.node().node_id());
  if (!joined_) return grpc::Status::OK;
  response->set_incarnation(view_.incarnation());
  switch (tasks_->status().state) {
    case runtime::TaskState::kIdle:
      response->set_state(v1::Instance::IDLE);
      break;
    case runtime::TaskState::kLoading:
      response->set_state(v1::Instance::LOADING);
      break;
    case runtime::TaskState::kServing:
      response->set_state(v1::Instance::SERVING);
      break;
    case runtime::TaskState::kFailed:
      response->set_state(v1::Instance::FAILED);
      break;
  }
  response->set_stage(tasks_->assignment().stage);
  response->set_queued_jobs(static_cast<std::int64_t>(scheduler_->queued()));
  for (const auto& uid : tasks_->running()) response->add_running_uids(uid.ToString());
  return grpc::Status::OK;
}

grpc::Status Instance::CancelWork(grpc::ServerContext*, const v1::CancelWorkRequest* request,
                                  google::protobuf::Empty*) {
  const auto uid = base::Uid::Parse(request->uid());
  if (!uid)
    return rpc::ToGrpc(
        base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_UID", "malformed uid"));
  if (joined_) scheduler_->Cancel(*uid);
  return grpc::Status::OK;
}

}  // namespace onepiece::instance
