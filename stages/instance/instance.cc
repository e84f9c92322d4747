#include "stages/instance/instance.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "cluster/base/status.h"
#include "stages/instance/device_use.h"
#include "stages/runtime/plugin_stages.h"
#include "stages/worker/worker_process.h"

namespace onepiece::instance {
namespace {

// How long the work that the instance has begun may take to find another place when it leaves. This
// is below the time after which a supervisor kills the instance.
constexpr auto kLeaveLimit = std::chrono::seconds(8);
// How long the instance then waits to be gone from its own routing table, and how often it looks.
constexpr auto kUnroutedLimit = std::chrono::milliseconds(500);
constexpr auto kUnroutedPoll = std::chrono::milliseconds(10);
// How long one database may take to answer what became of kept work. It is asked again.
constexpr auto kAskTimeout = std::chrono::milliseconds(500);
// Finished items that wait for one destination before the workers have to wait. The workers then
// compute for no destination, so there is room for what a slow one gets meanwhile.
constexpr std::size_t kMaxUndelivered = 8;

absl::StatusOr<v1::InstanceConfig> WithDefaults(v1::InstanceConfig config) {
  for (const std::string& name : config.devices()) {
    ONEPIECE_ASSIGN_OR_RETURN(const worker::WorkerDevice device, worker::WorkerDevice::Parse(name));
    // What the instance says of itself is said of the first one.
    if (config.device().empty()) config.set_device(device.stage_name);
  }
  if (config.devices_size() > 0) config.set_workers(config.devices_size());
  if (config.device().empty()) config.set_device("cpu");
  config.set_workers(std::max(1, config.workers()));
  return config;
}

worker::WorkersOptions WorkersOf(const v1::InstanceConfig& config) {
  worker::WorkersOptions options;
  // The cluster's, where that is its fabric: what a killed worker leaves goes with the cluster's.
  constexpr std::string_view kShm = "shm://";
  const std::string& fabric = config.node().fabric();
  options.shared_memory =
      fabric.starts_with(kShm) ? fabric.substr(kShm.size()) : "workers-" + config.node().node_id();
  return options;
}

/// Where stages run: in worker processes when the instance has several devices, else here.
runtime::TaskManager::StageSource StagesOf(const v1::InstanceConfig& config,
                                           worker::Workers& workers) {
  if (config.devices_size() == 0) return runtime::StagesFromPlugins(config.plugin_dir());
  return [&workers, folder = config.plugin_dir()](const std::string& plugin,
                                                  const std::string& stage) {
    return absl::StatusOr<std::unique_ptr<sdk::Stage>>(
        worker::StageInWorkers(workers, {folder, plugin, stage}));
  };
}

runtime::RequestSchedulerOptions SchedulerOptions(const v1::InstanceConfig& config,
                                                  const Drain& drain) {
  runtime::RequestSchedulerOptions options;
  // The drain is a member before the scheduler, so it outlives this.
  options.hand_over = [&drain] { return drain.orders().hand_over; };
  if (config.max_queued_jobs() > 0)
    options.max_queued = static_cast<std::size_t>(config.max_queued_jobs());
  // The largest message that may come can wait for another one.
  options.joins.max_large_bytes = std::max<std::size_t>(
      options.joins.max_large_bytes,
      static_cast<std::size_t>(std::max<std::int64_t>(config.ring().value_bytes(), 0)));
  return options;
}

node::KeptWorkOptions KeptOptions(const v1::InstanceConfig& config, telemetry::Metrics& metrics) {
  node::KeptWorkOptions options;
  options.count = node::CountIn(metrics);
  if (config.kept_bytes() > 0) options.max_bytes = static_cast<std::size_t>(config.kept_bytes());
  return options;
}

std::unique_ptr<node::Outbox> MakeOutbox(const v1::InstanceConfig& config, fabric::Fabric& fabric,
                                         const node::ClusterView& view, telemetry::Metrics& metrics,
                                         telemetry::Spans& spans, base::Clock& clock) {
  node::OutboxOptions options;
  options.node_id = config.node().node_id();
  options.metrics = &metrics;
  options.spans = &spans;
  return node::Outbox::Create(fabric, view, options, clock);
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

}  // namespace

absl::StatusOr<std::unique_ptr<Instance>> Instance::Open(
    v1::InstanceConfig config, fabric::Fabric& fabric, telemetry::Metrics& metrics,
    telemetry::Spans& spans, base::Clock& clock, base::Duration hand_over_after) {
  ONEPIECE_ASSIGN_OR_RETURN(config, WithDefaults(std::move(config)));
  auto view = std::make_unique<node::ClusterView>();
  node::InboxOptions options;
  options.label = config.node().node_id();
  node::ApplyRingConfig(config.ring(), options);
  options.block_hook = PinBlocks(config.device());
  options.metrics = &metrics;
  metrics.OnScrape([device = config.device(), &metrics] { ExportDeviceMemory(device, metrics); });
  ONEPIECE_ASSIGN_OR_RETURN(std::unique_ptr<node::Inbox> inbox,
                            node::Inbox::Open(fabric, *view, options, clock));
  return std::unique_ptr<Instance>(new Instance(std::move(config), std::move(view),
                                                std::move(inbox), fabric, metrics, spans, clock,
                                                hand_over_after));
}

Instance::Instance(v1::InstanceConfig config, std::unique_ptr<node::ClusterView> view,
                   std::unique_ptr<node::Inbox> inbox, fabric::Fabric& fabric,
                   telemetry::Metrics& metrics, telemetry::Spans& spans, base::Clock& clock,
                   base::Duration hand_over_after)
    : config_(std::move(config)),
      metrics_(metrics),
      clock_(clock),
      view_(std::move(view)),
      inbox_(std::move(inbox)),
      outbox_(MakeOutbox(config_, fabric, *view_, metrics, spans, clock)),
      values_(fabric, node_id(), clock),
      records_(*view_),
      drain_(clock, hand_over_after),
      scheduler_(SchedulerOptions(config_, drain_), std::make_unique<runtime::IndividualMode>(),
                 clock),
      reporter_(std::make_unique<JobReporter>(
          [this](const v1::UpdateJobRequest& request) { return records_.Update(request); },
          [this](const base::Uid& uid) { scheduler_.Cancel(uid); }, clock,
          [this](const v1::JobRecord& record) { FenceBy(record, node_id(), scheduler_); })),
      updates_(node_id(), *view_, *reporter_, leaving_),
      former_set_(node_id(), *view_),
      publisher_(config_.node().workflow_set(), *view_, drain_, leaving_,
                 [this](node::NodeStatus status) { agent_->SetState(std::move(status)); }),
      kept_(*view_, KeptWays(), KeptOptions(config_, metrics), clock),
      show_kept_(node::ShowKept(kept_, metrics)),
      work_service_(kept_),
      settler_(*view_, node::TellByGrpc(), clock),
      delivery_(node_id(),
                {*view_, *outbox_, values_, records_, scheduler_, drain_, former_set_, updates_,
                 kept_, settler_, spans, clock, leaving_},
                [this](const std::string& stage, const std::string& app) {
                  return ServesHere(stage, app);
                }),
      deliver_(
          kMaxUndelivered,
          [this](const runtime::FinishedWork& work) { return delivery_.DestinationOf(work); },
          [this](runtime::FinishedWork work) { return delivery_.Deliver(std::move(work)); }, clock),
      recorder_({*view_, updates_, deliver_, counts_, metrics, spans},
                [this] { return tasks_.assignment(); }),
      workers_(WorkersOf(config_)),
      tasks_(
          StagesOf(config_, workers_), scheduler_, recorder_,
          [this](const runtime::TaskStatus& status) { publisher_.StatusChanged(status); }, clock,
          config_.parked_bytes()),
      idle_work_(
          {{config_.idle_work().begin(), config_.idle_work().end()}, config_.node().data_dir()},
          clock),
      assignments_(config_, {*view_, scheduler_, tasks_, drain_, idle_work_, former_set_,
                             *reporter_, kept_, publisher_, clock, leaving_}),
      intake_(
          {*view_, *inbox_, scheduler_, deliver_, tasks_, drain_, former_set_, updates_, clock}),
      upkeep_(node_id(), {*view_, scheduler_, deliver_, tasks_, drain_, intake_, updates_,
                          assignments_, publisher_, clock}),
      load_report_(config_.device(), config_.workers(),
                   {*inbox_, scheduler_, deliver_, tasks_, idle_work_, counts_}, clock),
      service_(node_id(), *view_, tasks_, scheduler_) {}

Instance::~Instance() { Leave(); }

node::KeptWork::Ways Instance::KeptWays() {
  return {
      .ask = [this](const base::Uid& uid) { return records_.Get(uid, kAskTimeout); },
      .report =
          [this](const v1::UpdateJobRequest& update) { return records_.Update(update).status(); },
      .send = [this](const message::Message& message) { return delivery_.SendKept(message); }};
}

void Instance::SetDoor(rpc::Door* door) {
  door_ = door;
  inbox_->SetDoor(door);
}

void Instance::Join(const std::string& address, const std::string& metrics_address) {
  node::NodeAgentOptions options = node::MakeNodeAgentOptions(v1::INSTANCE, config_.node(), address,
                                                              metrics_address, metrics_, door_);
  options.pinned_stage = config_.pinned_stage();
  options.devices = {DescribeDevice(config_.device())};
  agent_ = std::make_unique<node::NodeAgent>(options, *view_);
  metrics_.OnScrape([this] {
    stage_metrics_.Export(tasks_.assignment().stage, tasks_.Metrics(), metrics_);
    ExportParked(tasks_.parked(), metrics_);
    telemetry::RaiseTo(
        metrics_.Counter("onepiece_fenced_work_total",
                         "Work that was dropped because a later run of its job came"),
        static_cast<double>(scheduler_.fenced()));
  });
  agent_->SetLoadSource([this] { return load_report_.Make(); });
  agent_->OnRouting([this](const std::shared_ptr<const node::Routing>&) { publisher_.Publish(); });
  agent_->OnAssignment(
      [this](const v1::Assignment& assignment) { assignments_.Assign(assignment); });
  agent_->Start();
  kept_.Start();
  settler_.Start();
  intake_.Start();
  upkeep_.Start();
}

bool Instance::ServesHere(const std::string& stage, const std::string& app) const {
  // Assigned is not enough: work that returns to an instance whose model is not loaded would be
  // refused again and again.
  const auto apps = tasks_.status().apps;
  return tasks_.IsAssigned(stage, app) && std::ranges::find(apps, app) != apps.end();
}

bool Instance::IsRouted() const {
  const auto table = view_->routing();
  const auto assignment = tasks_.assignment();
  return std::ranges::any_of(assignment.models, [&](const runtime::AppModel& model) {
    return std::ranges::any_of(
        table->Instances(model.app, assignment.stage),
        [&](const v1::Endpoint& endpoint) { return endpoint.node_id() == node_id(); });
  });
}

// Until senders have heard that the instance leaves, they fill a ring that nobody would empty.
void Instance::AwaitUnrouted() {
  const auto until = clock_.Now() + base::Scaled(kUnroutedLimit);
  while (IsRouted() && clock_.Now() < until) clock_.Pause({}, kUnroutedPoll);
}

void Instance::Leave() {
  // The flag is set even if the instance never joined. The task manager publishes once more when it
  // is destroyed, and without the flag that would reach an agent that is not there.
  if (leaving_.exchange(true) || agent_ == nullptr) return;
  // Work that is being computed ends at its next step boundary, and goes on elsewhere if it can.
  std::vector<runtime::WorkItem> queued = scheduler_.Close();
  // The instance leaves the routes but stays alive, so that the jobs that it still holds are not
  // declared lost meanwhile.
  publisher_.PublishLeaving();
  AwaitUnrouted();
  intake_.Stop();
  upkeep_.Stop();
  // What senders take for delivered until here, TakeRest finds. What they send later they keep.
  inbox_->Shut();
  std::vector<runtime::WorkItem> left = intake_.TakeRest();
  inbox_->Close();
  std::ranges::move(queued, std::back_inserter(left));
  for (auto& part : scheduler_.TakeJoins([](const message::Header&) { return true; }))
    left.push_back(std::move(part));
  {
    // Ends the leaving in time, even if a peer hangs.
    const std::jthread closer([this](const std::stop_token& stop) {
      clock_.Pause(stop, base::Scaled(kLeaveLimit));
      // The pause ends early when the scope does, so this runs either way.
      outbox_->Close();
    });
    delivery_.SendLeft(left);
    left.clear();
    // The workers end before the deliverer: nothing may be submitted to it after Close.
    assignments_.Release();
    deliver_.Close();  // The object stays: load reports still ask it what is held.
  }
  // Nobody reports any more. The databases hear how the jobs of this instance ended before they
  // hear that it is gone, which would make those jobs LOST.
  reporter_->Close();
  settler_.Close();
  kept_.Stop();
  agent_->Stop();
  reporter_.reset();
}

}  // namespace onepiece::instance
