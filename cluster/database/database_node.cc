#include "cluster/database/database_node.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/database/placement.h"
#include "cluster/job/job_record.h"
#include "cluster/node/work_service.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kReceiveSlice = 500ms;
/// How long a result waits until others have moved to files.
constexpr base::Duration kRoomLimit = 10s;

std::string_view OutcomeName(StoreOutcome outcome) {
  switch (outcome) {
    case StoreOutcome::kStored:
      return "stored";
    case StoreOutcome::kHeld:
      return "held";
    case StoreOutcome::kLate:
      return "late";
    case StoreOutcome::kRefused:
      return "refused";
    case StoreOutcome::kFull:
      return "full";
  }
  return "";
}

}  // namespace

DatabaseNodeOptions OptionsFrom(const v1::DatabaseConfig& config) {
  DatabaseNodeOptions options;
  options.node_id = config.node().node_id();
  options.read_only = config.node().read_only();
  if (config.budget_bytes() > 0) options.store.budget_bytes = config.budget_bytes();
  if (config.max_records() > 0) options.store.max_records = config.max_records();
  if (config.tombstone_ttl_s() > 0)
    options.store.tombstone_ttl = std::chrono::seconds(config.tombstone_ttl_s());
  if (config.copies() > 0) options.copies = config.copies();
  options.disk.folder = config.node().data_dir();
  options.disk.spill = config.when_full() == v1::WHEN_FULL_SPILL;
  options.store.evict =
      config.when_full() == v1::WHEN_FULL_UNSPECIFIED || config.when_full() == v1::WHEN_FULL_EVICT;
  if (config.spill_budget_bytes() > 0)
    options.disk.spill_budget_bytes = config.spill_budget_bytes();
  if (config.acknowledge() != v1::RESULT_COPIES_UNSPECIFIED)
    options.acknowledge = config.acknowledge();
  options.store.holder_grace = base::Scaled(options.store.holder_grace);
  options.store.keeper_grace = base::Scaled(options.store.keeper_grace);
  options.inbox.label = "database";
  node::ApplyRingConfig(config.ring(), options.inbox);
  return options;
}

absl::StatusOr<std::unique_ptr<DatabaseNode>> DatabaseNode::Open(
    const node::ClusterView& view, DatabaseNodeOptions options, fabric::Fabric& fabric,
    telemetry::Metrics& metrics, telemetry::Spans& spans, base::Clock& clock) {
  options.inbox.metrics = &metrics;
  ONEPIECE_ASSIGN_OR_RETURN(std::unique_ptr<ValueAccess> values,
                            ValueAccess::Create(fabric,
                                                {.budget_bytes = options.store.budget_bytes,
                                                 .max_records = options.store.max_records},
                                                clock));
  // Large results have a way of their own (ValueAccess).
  options.inbox.takes_values = false;
  // Messages arrive in slabs, from which peers read the results later: no copy in between.
  options.inbox.blocks =
      [&slabs = values->slabs()](std::size_t size) -> absl::StatusOr<node::BlockPool::Block> {
    ONEPIECE_ASSIGN_OR_RETURN(values::Slabs::Slab slab, slabs.Take(size));
    return node::BlockPool::Block{.owner = std::move(slab.owner), .bytes = slab.bytes};
  };
  ONEPIECE_ASSIGN_OR_RETURN(std::unique_ptr<node::Inbox> inbox,
                            node::Inbox::Open(fabric, view, options.inbox, clock));
  return std::unique_ptr<DatabaseNode>(new DatabaseNode(view, std::move(options), std::move(values),
                                                        std::move(inbox), fabric, metrics, spans,
                                                        clock));
}

DatabaseNode::DatabaseNode(const node::ClusterView& view, DatabaseNodeOptions options,
                           std::unique_ptr<ValueAccess> values, std::unique_ptr<node::Inbox> inbox,
                           fabric::Fabric& fabric, telemetry::Metrics& metrics,
                           telemetry::Spans& spans, base::Clock& clock)
    : view_(view),
      options_(std::move(options)),
      metrics_(metrics),
      spans_(spans),
      clock_(clock),
      values_(std::move(values)),
      disk_(std::make_unique<Disk>(options_.disk, clock)),
      replicator_(std::make_unique<Replicator>(
          view,
          ReplicatorOptions{.node_id = options_.node_id,
                            .copies = options_.copies,
                            .bytes_needed = options_.acknowledge == v1::RESULT_COPIES_ALL},
          clock)),
      inquiry_(view,
               {.ask_keeper = node::AskKeptByGrpc(),
                .ask_database =
                    [this](const v1::Endpoint& database, std::span<const base::Uid> uids) {
                      return anti_entropy_->AskForRecords(database, uids);
                    }},
               clock),
      store_(std::make_unique<JobStore>(
          options_.store, clock,
          JobStoreHooks{
              .changed = [replicator = replicator_.get()](
                             const base::Uid& uid,
                             Change change) { replicator->Enqueue(uid, change); },
              .made = [disk = disk_.get()](const v1::JobRecord& record) { disk->Note(record); },
              .settle = [replicator = replicator_.get()](
                            const base::Uid& uid) { return replicator->Settle(uid); },
              .kept = [this](const base::Uid& uid,
                             const v1::WorkHolder& holder) { return inquiry_.IsKept(uid, holder); },
              .ended = [disk = disk_.get()](const v1::JobRecord& record) { disk->Note(record); },
              .forgotten = [disk = disk_.get()](const base::Uid& uid) { disk->Forget(uid); },
              .served =
                  [this](const base::Uid& uid, const Artifacts* artifacts) {
                    values_->Serve(uid, artifacts);
                    disk_->Served(uid, artifacts);
                  }})),
      inbox_(std::move(inbox)),
      outbox_(node::Outbox::Create(
          fabric, view, {.node_id = options_.node_id, .metrics = &metrics, .spans = &spans},
          clock)),
      value_peers_(fabric, options_.node_id, clock),
      anti_entropy_(
          std::make_unique<AntiEntropy>(view,
                                        AntiEntropyOptions{.node_id = options_.node_id,
                                                           .copies = options_.copies,
                                                           .interval = options_.compare_interval,
                                                           .drop_after = options_.drop_after},
                                        *store_, *replicator_, clock)),
      service_(std::make_unique<DatabaseService>(
          options_.node_id, *store_, *replicator_, *anti_entropy_, *values_,
          ValueAccess::Store{
              .wants = [this](const base::Uid& uid) { return Wants(uid); },
              .has_room =
                  [this](std::int64_t bytes) { return disk_->spills() || store_->MakeRoom(bytes); },
              .keep = [this](const ResultBundle& bundle, message::Kind kind,
                             const std::string& sender) { return Write(bundle, kind, sender); }},
          clock, rpc::StreamGuardOptions(), options_.read_only)) {
  if (options_.door != nullptr) SetDoor(*options_.door);
  metrics_.OnScrape([this] { ExportMetrics(); });
  service_->OnDescribe([this](v1::Database& database) { Describe(database); });
}

void DatabaseNode::SetDoor(const rpc::Door& door) {
  inbox_->SetDoor(&door);
  service_->SetDoor(&door);
  quotas_.emplace(door, options_.copies,
                  [this] { return view_.routing()->table().databases_size(); });
  service_->SetQuotas(&*quotas_);
}

void DatabaseNode::Describe(v1::Database& database) const {
  database.set_copies(options_.copies);
  database.set_spill_budget_bytes(disk_->spill_budget_bytes());
  database.set_memory_bytes(static_cast<std::int64_t>(values_->slabs().stats().registered_bytes));
}

DatabaseNode::~DatabaseNode() { Stop(); }

std::vector<grpc::Service*> DatabaseNode::services() { return {service_.get(), inbox_->service()}; }

absl::Status DatabaseNode::Recover(const std::string& cluster_id) {
  return disk_->Open(cluster_id, *store_);
}

void DatabaseNode::Start() {
  replicator_->Start(*store_, {.outbox = *outbox_, .values = value_peers_},
                     [this](const base::Uid& uid) { return store_->Confirm(uid); });
  anti_entropy_->Start();
  inquiry_.Start();
  message_thread_ = std::jthread([this](const std::stop_token& stop) { TakeMessages(stop); });
  upkeep_thread_ = std::jthread([this](const std::stop_token& stop) { Upkeep(stop); });
  service_->Open();
}

void DatabaseNode::Stop() {
  service_->Stop();
  message_thread_.request_stop();
  upkeep_thread_.request_stop();
  inbox_->Close();
  outbox_->Close();
  inquiry_.Stop();
  anti_entropy_->Stop();
  replicator_->Stop();
  for (std::jthread* thread : {&message_thread_, &upkeep_thread_}) {
    if (thread->joinable()) thread->join();
  }
  disk_->Stop();
}

void DatabaseNode::Follow(const v1::DatabaseLimits& limits) {
  const auto choose = [](std::int64_t limit, std::int64_t own) { return limit > 0 ? limit : own; };
  const JobStoreLimits next{
      .budget_bytes = choose(limits.budget_bytes(), options_.store.budget_bytes),
      .max_records = choose(limits.max_records(), options_.store.max_records),
      .tombstone_ttl = limits.tombstone_ttl_s() > 0
                           ? base::Duration(std::chrono::seconds(limits.tombstone_ttl_s()))
                           : options_.store.tombstone_ttl};
  // The memory comes before the store, which may use it at once.
  values_->SetBudget(next.budget_bytes);
  store_->SetLimits(next);
  disk_->SetSpillBudget(choose(limits.spill_budget_bytes(), options_.disk.spill_budget_bytes));
}

v1::NodeLoad DatabaseNode::load() const {
  v1::NodeLoad load;
  const node::RingStats ring = inbox_->stats();
  load.set_ring_slots(static_cast<std::int64_t>(ring.slots));
  load.set_ring_slots_used(static_cast<std::int64_t>(ring.slots_used));
  const JobStoreStats stats = store_->stats();
  load.set_memory_bytes(stats.result_bytes);
  if (stats.budget_bytes > 0) {
    load.set_utilization(static_cast<double>(stats.result_bytes) /
                         static_cast<double>(stats.budget_bytes));
  }
  return load;
}

void DatabaseNode::TakeMessages(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const absl::StatusOr<node::Received> received = inbox_->Receive(clock_.Now() + kReceiveSlice);
    if (received.ok()) {
      Take(*received);
    } else if (received.status().code() == absl::StatusCode::kCancelled) {
      return;
    } else if (received.status().code() != absl::StatusCode::kDeadlineExceeded) {
      spdlog::error("op=receive {}", base::View(received.status().message()));
    }
  }
}

void DatabaseNode::CountResult(std::string_view outcome) {
  metrics_
      .Counter("onepiece_results_total", "Results that arrived, by what became of them",
               {{"outcome", std::string(outcome)}})
      .Increment();
}

void DatabaseNode::Take(const node::Received& received) {
  const message::Header& header = received.message.header;
  if (header.kind != message::Kind::kResult && header.kind != message::Kind::kReplica) {
    CountResult("misdirected");
    spdlog::error("op=store uid={} sender={} a message for a stage came to a database",
                  header.uid.ToString(), header.sender);
    return;
  }
  const absl::StatusOr<ResultBundle> bundle = MakeResultBundle(received.message);
  if (!bundle.ok()) {
    CountResult("empty");
    store_->FailJob(header, "EMPTY_RESULT", base::Message(bundle.status()));
    return;
  }
  // Nobody hears what becomes of a message, so a result without room ends its job.
  (void)Keep(*bundle, header.kind, header.sender, /*tried_again=*/false);
}

absl::StatusOr<bool> DatabaseNode::Write(const ResultBundle& bundle, message::Kind kind,
                                         const std::string& sender) {
  ONEPIECE_ASSIGN_OR_RETURN(
      const StoreOutcome outcome,
      Keep(bundle, kind, sender, /*tried_again=*/kind == message::Kind::kResult));
  if (outcome == StoreOutcome::kFull) return MemoryFull(bundle.total_bytes);
  return outcome == StoreOutcome::kStored || outcome == StoreOutcome::kHeld;
}

// Only the store decides, once the bytes have arrived. This check saves most of the transfers that
// the store would drop.
bool DatabaseNode::Wants(const base::Uid& uid) const {
  if (store_->FindResult(uid) != nullptr) return false;
  const std::vector<v1::JobRecord> records = store_->Records(std::vector{uid});
  if (records.empty() || job::EndOf(records[0]) == v1::Job::STATE_UNSPECIFIED) return true;
  return job::EndOf(records[0]) == v1::Job::SUCCEEDED && !job::IsTombstone(records[0]);
}

absl::StatusOr<StoreOutcome> DatabaseNode::Keep(const ResultBundle& bundle, message::Kind kind,
                                                const std::string& sender, bool tried_again) {
  const std::string uid = bundle.uid.ToString();
  telemetry::ScopedSpan span(spans_, bundle.uid, "store");
  // A replica counts immediately, because the peer that sent it holds the result already.
  const bool hold = kind == message::Kind::kResult &&
                    options_.acknowledge == v1::RESULT_COPIES_ALL &&
                    replicator_->CanCopy(bundle.uid);
  const absl::StatusOr<StoreOutcome> outcome = StoreInRoom(bundle, kind, hold, tried_again);
  if (outcome.ok() && *outcome == StoreOutcome::kHeld) replicator_->Hold(bundle.uid);
  if (!outcome.ok()) {
    CountResult("refused");
    spdlog::error("op=store uid={} bytes={} {}", uid, bundle.total_bytes,
                  base::View(outcome.status().message()));
    return outcome;
  }
  CountResult(OutcomeName(*outcome));
  span.Set("outcome", OutcomeName(*outcome));
  spdlog::debug("op=store uid={} bytes={} outcome={} sender={}", uid, bundle.total_bytes,
                OutcomeName(*outcome), sender);
  return outcome;
}

// While results move to files, nobody empties the ring, and its backpressure holds the producers.
absl::StatusOr<StoreOutcome> DatabaseNode::StoreInRoom(const ResultBundle& bundle,
                                                       message::Kind kind, bool hold,
                                                       bool tried_again) {
  const base::MonotonicTime deadline = clock_.Now() + base::Scaled(kRoomLimit);
  while (disk_->spills()) {
    const auto outcome = store_->StoreResult(bundle, kind, {.hold = hold, .wait_for_room = true});
    if (!outcome.ok() || *outcome != StoreOutcome::kFull) return outcome;
    if (clock_.Now() >= deadline || !disk_->MakeRoom(deadline)) break;
  }
  return store_->StoreResult(bundle, kind, {.hold = hold, .wait_for_room = tried_again});
}

void DatabaseNode::Upkeep(const std::stop_token& stop) {
  const base::MonotonicTime started = clock_.Now();
  while (!stop.stop_requested()) {
    const std::shared_ptr<const node::Routing> routing = view_.routing();
    JobStore::IsAlive is_alive;
    if (routing->epoch() > 0) {
      is_alive = [&routing](const v1::WorkHolder& holder) {
        return !routing->IsOver(holder.node_id(), holder.incarnation(), holder.routing_epoch(),
                                routing->table().workflow_set());
      };
    }
    store_->Sweep(is_alive);
    values_->Sweep();
    GiveUpLost(*routing, started);
    clock_.Pause(stop, options_.sweep_interval);
  }
}

// Only a keeper of a job can know that no other database has its result, because a comparison
// covers only the jobs that both sides keep.
void DatabaseNode::GiveUpLost(const node::Routing& routing, base::MonotonicTime started) {
  if (store_->stats().missing_results == 0) return;
  Places databases = node::DatabasePlaces(routing.table());
  const bool alone = databases.size() < 2;
  if (!routing.FindDatabase(options_.node_id).has_value())
    databases.push_back({.node_id = options_.node_id});
  const auto keeps = [&](const base::Uid& uid) {
    return Keeps(uid, options_.node_id, databases, options_.copies);
  };
  const base::MonotonicTime patience = clock_.Now() - base::Scaled(options_.lost_after);
  const std::optional<base::MonotonicTime> settled = anti_entropy_->SettledTime();
  // Results that were missing at the start: perhaps no peer will send them, so waiting is bounded
  // by `lost_after`. A database that sees no peer may have come back before its peers, so it does
  // not count as settled here.
  if (patience >= started || (settled.has_value() && !alone)) store_->MarkLost(started, keeps);
  // Results that went missing later may still be on their way, so they get `lost_after` too.
  if (settled.has_value()) store_->MarkLost(std::min(*settled, patience), keeps);
}

void DatabaseNode::ExportMetrics() {
  if (!options_.disk.folder.empty()) ExportDiskMetrics();
  const JobStoreStats stats = store_->stats();
  const auto gauge = [this](std::string_view name, std::string_view help, double value) {
    metrics_.Gauge(name, help).Set(value);
  };
  const auto counter = [this](std::string_view name, std::string_view help, std::uint64_t total) {
    telemetry::RaiseTo(metrics_.Counter(name, help), static_cast<double>(total));
  };
  gauge("onepiece_job_records", "Job records held", static_cast<double>(stats.records));
  gauge("onepiece_results", "Results whose bytes are held", static_cast<double>(stats.results));
  gauge("onepiece_result_bytes", "Bytes of results held", static_cast<double>(stats.result_bytes));
  gauge("onepiece_result_budget_bytes", "Bytes of results that may be held",
        static_cast<double>(stats.budget_bytes));
  gauge("onepiece_result_reservations", "Places that peers have reserved to write results into",
        static_cast<double>(values_->reservations()));
  counter("onepiece_results_evicted_total", "Results purged unacknowledged to make room",
          stats.evicted_results);
  counter("onepiece_results_expired_total", "Results that nobody fetched in time", stats.expired);
  counter("onepiece_jobs_lost_total", "Jobs that ended FAILED with LOST", stats.lost);
  counter("onepiece_jobs_overdue_total", "Jobs that ended FAILED with DEADLINE_EXCEEDED",
          stats.deadline_exceeded);
  counter("onepiece_tombstones_forgotten_total",
          "Tombstones forgotten before their time, for want of room for records",
          stats.tombstones_forgotten);
  counter("onepiece_job_records_refused_total", "Records refused for want of room",
          stats.refused_records);
  const PeerStats replication = replicator_->stats();
  counter("onepiece_replicated_records_total", "Records sent to peers", replication.records_sent);
  counter("onepiece_replicated_results_total", "Results sent to peers", replication.results_sent);
  counter("onepiece_replication_failures_total", "Attempts to replicate that failed",
          replication.failures);
  counter("onepiece_replication_dropped_total", "Changes never replicated for want of room",
          replication.dropped);
  counter("onepiece_results_confirmed_alone_total",
          "Ends that counted before a second keeper had them", replicator_->confirmed_alone());
  const AntiEntropyStats compared = anti_entropy_->stats();
  counter("onepiece_replication_comparisons_total", "Times that a peer's jobs were compared with",
          compared.compared);
  counter("onepiece_replication_repaired_records_total",
          "Records that a comparison found missing or old here or there",
          compared.records_pushed + compared.records_asked);
  counter("onepiece_replication_repaired_results_total",
          "Results that a comparison found missing here or there",
          compared.results_pushed + compared.results_asked);
  counter("onepiece_replication_handed_over_total",
          "Jobs dropped here because the databases that keep them now have them",
          compared.handed_over);
  counter("onepiece_replication_nonsense_total", "Answers of peers that cannot be right",
          compared.nonsense);
  gauge("onepiece_replication_waiting_records", "Records that wait to be replicated",
        static_cast<double>(replication.records_waiting));
  gauge("onepiece_replication_waiting_results", "Results that wait to be replicated",
        static_cast<double>(replication.results_waiting));
}

void DatabaseNode::ExportDiskMetrics() {
  const DiskStats stats = disk_->stats();
  const auto gauge = [this](std::string_view name, std::string_view help, std::int64_t value) {
    metrics_.Gauge(name, help).Set(static_cast<double>(value));
  };
  const auto counter = [this](std::string_view name, std::string_view help, std::uint64_t total) {
    telemetry::RaiseTo(metrics_.Counter(name, help), static_cast<double>(total));
  };
  gauge("onepiece_spilled_results", "Results in files", stats.spill.results);
  gauge("onepiece_spilled_bytes", "Bytes of these files", stats.spill.bytes);
  gauge("onepiece_spill_budget_bytes", "Bytes of files that may be", disk_->spill_budget_bytes());
  counter("onepiece_results_spilled_total", "Results moved to files", stats.spill.written);
  counter("onepiece_spill_failures_total", "Files that could not be written",
          stats.spill.failed_writes);
  counter("onepiece_spill_damaged_total", "Files found damaged, and dropped", stats.spill.damaged);
  gauge("onepiece_journal_records", "Records on disk", stats.journal.records);
  gauge("onepiece_journal_waiting", "Records that wait for the disk", stats.journal.waiting);
  counter("onepiece_journal_failures_total", "Records, or groups of them, that were not written",
          stats.journal.failed);
  gauge("onepiece_results_missing", "Results that this instance lacks and peers may still bring",
        store_->stats().missing_results);
  counter("onepiece_results_lost_on_restart_total", "Results that no database has any more",
          store_->stats().lost_on_restart);
}

}  // namespace onepiece::database
