#include "tests/database/simulation/database.h"

#include <algorithm>

#include "cluster/database/placement.h"
#include "cluster/job/job_record.h"

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;
using database::Change;

constexpr int kCopies = 2;
constexpr Duration kUpkeep = 250ms;
constexpr Duration kJournalDelay = 50ms;
constexpr Duration kTombstones = 5s;

base::Uid UidOf(const v1::JobRecord& record) { return *base::Uid::Parse(record.job().uid()); }

database::JobStoreOptions StoreOptions() {
  database::JobStoreOptions options;
  options.tombstone_ttl = kTombstones;
  return options;
}

}  // namespace

void Database::Start() {
  BeginLife();
  taken_.clear();
  settlements_ = std::make_unique<database::Settlements>(2s, 20s);
  peers_.clear();
  asking_ = false;
  inquiry_ = std::make_unique<database::WorkInquiry>(*view_, InquiryWays(), world().clock());
  store_ = std::make_unique<database::JobStore>(
      StoreOptions(), world().clock(),
      database::JobStoreHooks{
          .changed = [this](const base::Uid& uid, Change change) { Changed(uid, change); },
          .made = [this](const v1::JobRecord& record) { Note(record); },
          .settle = [this](const base::Uid& uid) { return Settle(uid); },
          .kept = [this](const base::Uid& uid,
                         const v1::WorkHolder& holder) { return inquiry_->IsKept(uid, holder); },
          .ended = [this](const v1::JobRecord& record) { Ended(record); }});
  for (const auto& [uid, record] : journal_) (void)store_->Restore(record);
  world().Later(id_, kUpkeep, [this] { Upkeep(); });
  world().Later(id_, 1s, [this] { Compare(); });
}

std::optional<v1::Endpoint> Database::Find(const std::string& id) const {
  return view_->routing()->FindDatabase(id);
}

std::vector<std::string> Database::Others() const {
  std::vector<std::string> others;
  for (const v1::Endpoint& database : view_->routing()->Databases()) {
    if (database.node_id() != id_) others.push_back(database.node_id());
  }
  return others;
}

bool Database::Answers(const std::string& id) const {
  const auto peer = peers_.find(id);
  return Find(id).has_value() && (peer == peers_.end() || !peer->second.silent);
}

bool Database::TakesResults(const std::string& id) const {
  const auto peer = peers_.find(id);
  return Answers(id) && (peer == peers_.end() || world().Now() >= peer->second.distrusted_until);
}

std::vector<std::string> Database::OtherKeepers(const base::Uid& uid) const {
  database::Places routed = {{.node_id = id_}};
  for (std::string& id : Others()) routed.push_back({.node_id = std::move(id)});
  std::vector<std::string> others;
  for (const std::string* id : database::KeepersOf(uid, routed, kCopies)) {
    if (*id != id_) others.push_back(*id);
  }
  return others;
}

// Called under the store's lock, as all hooks are: nothing here may call the store.
void Database::Changed(const base::Uid& uid, Change change) {
  for (const std::string& id : OtherKeepers(uid)) {
    Peer& peer = peers_[id];
    (change == Change::kRecord ? peer.records : peer.results).Add(uid, false);
    world().Later(id_, Duration::zero(), [this, id] { Pump(id); });
  }
}

bool Database::Settle(const base::Uid& uid) {
  std::set<std::string> keepers;
  for (const std::string& id : OtherKeepers(uid)) {
    if (Answers(id)) keepers.insert(id);
  }
  for (const std::string& id : keepers) world().Tell(id_ + " asks " + id + " " + uid.ToString());
  if (keepers.empty()) return false;
  settlements_->Begin(uid, keepers, world().Now());
  for (const std::string& id : keepers) {
    peers_[id].records.Add(uid, true);
    world().Later(id_, Duration::zero(), [this, id] { Pump(id); });
  }
  return true;
}

void Database::Hold(const base::Uid& uid) {
  std::set<std::string> keepers;
  for (const std::string& id : OtherKeepers(uid)) {
    if (TakesResults(id)) keepers.insert(id);
    peers_[id].results.Add(uid, true);
    world().Later(id_, Duration::zero(), [this, id] { Pump(id); });
  }
  settlements_->Begin(uid, keepers, world().Now());
}

// From here on a client may have been told.
void Database::Ended(const v1::JobRecord& record) {
  Note(record);
  world().Tell(id_ + " tells " + v1::Job::State_Name(record.job().state()) + " " +
               record.job().error().reason() + " " + record.job().uid());
  const bool is_new = !cluster_.ledger.told().contains(UidOf(record));
  cluster_.ledger.Ended(record, id_);
  if (is_new && record.job().state() == v1::Job::SUCCEEDED) CheckCopies(UidOf(record));
}

// While all is well, a success is told when every keeper has the result.
void Database::CheckCopies(const base::Uid& uid) {
  if (world().Now() < cluster_.ledger.troubled_until || cluster_.ledger.split) return;
  for (const std::string& id : OtherKeepers(uid)) {
    const World::Process& keeper = world().At(id);
    const bool well = keeper.alive && !keeper.paused && world().Now() - keeper.healthy_since > 6s;
    if (well && cluster_.databases.at(id)->store().FindResult(uid) == nullptr)
      world().Violation("job " + uid.ToString() + " SUCCEEDED at " + id_ + " without a copy at " +
                        id);
  }
}

void Database::Note(const v1::JobRecord& record) {
  world().Later(id_, kJournalDelay, [this, record] { journal_[UidOf(record)] = record; });
}

void Database::Pump(const std::string& id) {
  if (!Find(id).has_value()) return;
  Peer& peer = peers_[id];
  PumpRecords(id, peer);
  PumpResults(id, peer);
}

void Database::PumpRecords(const std::string& id, Peer& peer) {
  if (peer.sending_records || peer.records.size() == 0 || world().Now() < peer.retry_at) return;
  const std::vector<base::Uid> uids = peer.records.Take(256);
  peer.sending_records = true;
  world().Call<std::vector<v1::JobRecord>>(
      id_, World::PlaceOf(Find(id)->address()),
      [this, id, records = store_->Records(uids)] {
        return cluster_.databases.at(id)->Receive(id_, records);
      },
      [this, id, uids](const World::Reply<std::vector<v1::JobRecord>>& reply) {
        Peer& asked = peers_[id];
        asked.sending_records = false;
        asked.slow = reply.answer.has_value() || reply.refused ? 0 : asked.slow + 1;
        if (asked.silent && reply.answer.has_value()) asked.distrusted_until = {};
        asked.silent = !reply.answer.has_value() && (reply.refused || asked.slow >= 2);
        if (reply.answer.has_value()) {
          (void)Receive(id, *reply.answer);
          return Pump(id);
        }
        cluster_.ledger.troubled_until = world().Now() + 12s;
        for (const base::Uid& uid : uids) {
          asked.records.Add(uid, false);
          if (reply.refused) Failed(id, uid);
        }
        asked.retry_at = world().Now() + 200ms;
        world().Later(id_, 200ms, [this, id] { Pump(id); });
      });
}

// A result is written into its receiver's memory: that the write succeeds says nothing of whether
// its process is well.
void Database::PumpResults(const std::string& id, Peer& peer) {
  if (peer.results.size() == 0 || !peer.sending.empty()) return;
  const base::Uid uid = peer.results.Take(1).front();
  const auto artifacts = store_->FindResult(uid);
  const std::vector<v1::JobRecord> records = store_->Records(std::vector{uid});
  if (artifacts == nullptr || records.empty()) return Failed(id, uid);
  peer.sending.insert(uid);
  database::ResultBundle bundle;
  bundle.uid = uid;
  bundle.run = records.front().run();
  bundle.deadline = world().Now() + 60s;
  bundle.artifacts = *artifacts;
  for (const auto& artifact : *artifacts) bundle.total_bytes += artifact.info.size_bytes();
  // A large one takes a while.
  const Duration took =
      world().Chance(0.2) ? world().Between(10ms, 1500ms) : world().Between(0ms, 5ms);
  world().Later(id_, took, [this, id, uid, bundle] {
    peers_[id].sending.erase(uid);
    world().Write(id_, id, [this, id, bundle] { cluster_.databases.at(id)->TakeReplica(bundle); });
    Pump(id);
  });
}

std::vector<v1::JobRecord> Database::Receive(const std::string& from,
                                             const std::vector<v1::JobRecord>& records) {
  for (const v1::JobRecord& record : records) {
    world().Tell(id_ + " receives from " + from + " " + v1::Job::State_Name(job::EndOf(record)) +
                 (record.has_proposed() ? "?" : "") + (record.has_bytes() ? " with bytes " : " ") +
                 record.job().uid());
  }
  store_->Merge(records);
  std::vector<v1::JobRecord> answers;
  for (const v1::JobRecord& theirs : records) {
    const base::Uid uid = UidOf(theirs);
    std::vector<v1::JobRecord> ours = store_->Records(std::vector{uid});
    if (ours.empty()) continue;
    if (settlements_->WaitsFor(from, uid) &&
        database::Agrees(ours.front(), theirs, TakesResults(from)) &&
        settlements_->Resolve(from, uid)) {
      (void)store_->Confirm(uid);
      ours = store_->Records(std::vector{uid});
    }
    if (!ours.empty() && database::IsAnswered(ours.front(), theirs))
      answers.push_back(ours.front());
  }
  return answers;
}

void Database::Failed(const std::string& id, const base::Uid& uid) {
  world().Tell(id_ + " cannot reach " + id + " " + uid.ToString());
  cluster_.ledger.troubled_until = world().Now() + 12s;
  if (settlements_->Resolve(id, uid)) (void)store_->Confirm(uid);
}

void Database::Upkeep() {
  const Table table = view_->routing();
  const database::JobStore::IsAlive is_alive = [&](const v1::WorkHolder& holder) {
    return !table->IsOver(holder.node_id(), holder.incarnation(), holder.routing_epoch(),
                          table->table().workflow_set());
  };
  store_->Sweep(table->epoch() > 0 ? is_alive : database::JobStore::IsAlive());
  const auto overdue =
      settlements_->TakeOverdue(world().Now(), [this](const std::string& id, const base::Uid& uid) {
        const Peer& peer = peers_[id];
        return peer.sending.contains(uid) || (TakesResults(id) && peer.results.contains(uid));
      });
  for (const auto& [uid, silent] : overdue) {
    world().Tell(id_ + " waits no longer " + uid.ToString());
    cluster_.ledger.troubled_until = world().Now() + 12s;
    if (AskNewKeepers(uid) || !store_->Confirm(uid)) continue;
    for (const std::string& id : silent) {
      peers_[id].distrusted_until = world().Now() + 3s;
      peers_[id].results.Add(uid, false);
    }
  }
  for (const std::string& id : Others()) Pump(id);
  if (!std::exchange(asking_, true)) {
    world().Spawn(id_, [this] {
      inquiry_->Ask();
      asking_ = false;
    });
  }
  world().Later(id_, kUpkeep, [this] { Upkeep(); });
}

database::WorkInquiry::Ways Database::InquiryWays() {
  const auto ask_keeper =
      [this](const v1::Endpoint& keeper,
             const v1::FindKeptRequest& request) -> absl::StatusOr<v1::FindKeptResponse> {
    const World::Place place = World::PlaceOf(keeper.address());
    const auto reply = world().Ask<v1::FindKeptResponse>(
        id_, place,
        [&cluster = cluster_, place, request] {
          v1::FindKeptResponse response;
          for (const v1::HeldWork& work : request.works())
            response.add_kept(KeptAt(cluster, place.node).Keeps(work));
          return response;
        },
        500ms);
    if (!reply.answer.has_value()) return absl::UnavailableError("away");
    for (const bool kept : reply.answer->kept())
      world().Tell(id_ + " hears that " + keeper.node_id() + (kept ? " keeps" : " lacks") +
                   " work");
    return *reply.answer;
  };
  // As AntiEntropy::Send.
  const auto ask_database = [this](const v1::Endpoint& peer, std::span<const base::Uid> uids) {
    const World::Place place = World::PlaceOf(peer.address());
    const auto reply = world().Ask<bool>(
        id_, place, [this, place, jobs = std::vector<base::Uid>(uids.begin(), uids.end())] {
          Database& asked = *cluster_.databases.at(place.node);
          for (const base::Uid& uid : jobs) asked.peers_[id_].records.Add(uid, false);
          asked.Pump(id_);
          return true;
        });
    return reply.answer.has_value() ? absl::OkStatus() : absl::UnavailableError("away");
  };
  return {.ask_keeper = ask_keeper, .ask_database = ask_database};
}

bool Database::AskNewKeepers(const base::Uid& uid) {
  const std::vector<std::string> keepers = OtherKeepers(uid);
  if (keepers.size() < kCopies || store_->FindResult(uid) == nullptr) return false;
  std::set<std::string> answering;
  for (const std::string& id : keepers) {
    if (!Answers(id)) continue;
    answering.insert(id);
    peers_[id].records.Add(uid, true);
    peers_[id].results.Add(uid, true);
  }
  if (answering.empty()) return false;
  settlements_->Begin(uid, answering, world().Now());
  return true;
}

// Stands for the comparison of digests: sooner or later each keeper is sent what it lacks.
void Database::Compare() {
  for (const std::string& id : Others()) {
    v1::ListJobsRequest request;
    request.set_page_size(1000);
    const auto page = store_->List(request);
    for (const v1::Job& job : page->jobs()) {
      const base::Uid uid = *base::Uid::Parse(job.uid());
      const std::vector<std::string> keepers = OtherKeepers(uid);
      if (std::ranges::find(keepers, id) == keepers.end()) continue;
      peers_[id].records.Add(uid, false);
      if (store_->FindResult(uid) != nullptr && job::IsTerminal(job.state()))
        peers_[id].results.Add(uid, false);
    }
    Pump(id);
  }
  // While all is well there is little to find.
  world().Later(id_, world().Passed() < 80s ? 4s : 15s, [this] { Compare(); });
}

void Database::Deposit(const message::Message& message, std::uint64_t number) {
  if (!taken_.insert(number).second) return;
  world().Later(id_, Duration::zero(),
                [this, message] { TakeResult(*database::MakeResultBundle(message)); });
}

void Database::TakeResult(const database::ResultBundle& bundle) {
  world().Tell(id_ + " has the result " + bundle.uid.ToString());
  bool can_copy = false;
  for (const std::string& id : OtherKeepers(bundle.uid)) can_copy = can_copy || TakesResults(id);
  const auto outcome = store_->StoreResult(bundle, message::Kind::kResult, {.hold = can_copy});
  if (outcome.ok() && *outcome == database::StoreOutcome::kHeld) Hold(bundle.uid);
}

void Database::TakeReplica(const database::ResultBundle& bundle) {
  world().Tell(id_ + " has a copy " + bundle.uid.ToString());
  (void)store_->StoreResult(bundle, message::Kind::kReplica);
}

}  // namespace onepiece::simulation
