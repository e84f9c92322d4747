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

base::Uid UidOf(const v1::JobRecord& record) { return *base::Uid::Parse(record.job().uid()); }

}  // namespace

Database::Database(std::string node_id, World& world, const Databases& all, Ledger& ledger)
    : id_(std::move(node_id)), world_(world), all_(all), ledger_(ledger) {}

void Database::Start() {
  world_.Start(id_);
  settlements_ = std::make_unique<database::Settlements>(2s, 20s);
  peers_.clear();
  store_ = std::make_unique<database::JobStore>(
      database::JobStoreOptions(), world_.clock(),
      database::JobStoreHooks{
          .changed = [this](const base::Uid& uid, Change change) { Changed(uid, change); },
          .made = [this](const v1::JobRecord& record) { Note(record); },
          .settle = [this](const base::Uid& uid) { return Settle(uid); },
          .ended = [this](const v1::JobRecord& record) { Ended(record); }});
  for (const auto& [uid, record] : journal_) (void)store_->Restore(record);
  world_.Later(id_, kUpkeep, [this] { Upkeep(); });
  world_.Later(id_, 1s, [this] { Compare(); });
}

bool Database::Answers(const std::string& id) const {
  const auto peer = peers_.find(id);
  return world_.Routed(id) && (peer == peers_.end() || !peer->second.silent);
}

bool Database::TakesResults(const std::string& id) const {
  const auto peer = peers_.find(id);
  return Answers(id) && (peer == peers_.end() || world_.Now() >= peer->second.distrusted_until);
}

std::vector<std::string> Database::OtherKeepers(const base::Uid& uid) const {
  std::vector<std::string> routed;
  for (const auto& [id, database] : all_) {
    if (id == id_ || world_.Routed(id)) routed.push_back(id);
  }
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
    world_.Later(id_, Duration::zero(), [this, id] { Pump(id); });
  }
}

bool Database::Settle(const base::Uid& uid) {
  std::set<std::string> keepers;
  for (const std::string& id : OtherKeepers(uid)) {
    if (Answers(id)) keepers.insert(id);
  }
  for (const std::string& id : keepers) world_.Tell(id_ + " asks " + id + " " + uid.ToString());
  if (keepers.empty()) return false;
  settlements_->Begin(uid, keepers, world_.Now());
  for (const std::string& id : keepers) {
    peers_[id].records.Add(uid, true);
    world_.Later(id_, Duration::zero(), [this, id] { Pump(id); });
  }
  return true;
}

void Database::Hold(const base::Uid& uid) {
  std::set<std::string> keepers;
  for (const std::string& id : OtherKeepers(uid)) {
    if (TakesResults(id)) keepers.insert(id);
    peers_[id].results.Add(uid, true);
    world_.Later(id_, Duration::zero(), [this, id] { Pump(id); });
  }
  settlements_->Begin(uid, keepers, world_.Now());
}

// From here on a client may have been told.
void Database::Ended(const v1::JobRecord& record) {
  Note(record);
  world_.Tell(id_ + " tells " + v1::Job::State_Name(record.job().state()) + " " +
              record.job().error().reason() + " " + record.job().uid());
  const v1::Job::State state = record.job().state();
  if (state == v1::Job::EXPIRED || job::IsTombstone(record)) return;
  const auto [known, is_new] = ledger_.told.try_emplace(UidOf(record), record.job());
  if (!is_new && known->second.state() != state && !ledger_.split) {
    world_.Violation("job " + record.job().uid() +
                     " ended twice: " + v1::Job::State_Name(known->second.state()) + ", then " +
                     v1::Job::State_Name(state) + " at " + id_);
  }
  if (is_new && state == v1::Job::SUCCEEDED) CheckCopies(UidOf(record));
}

// While all is well, a success is told when every keeper has the result.
void Database::CheckCopies(const base::Uid& uid) {
  if (world_.Now() < ledger_.troubled_until || ledger_.split) return;
  for (const std::string& id : OtherKeepers(uid)) {
    const World::Process& keeper = world_.At(id);
    const bool well = keeper.alive && !keeper.paused && world_.Now() - keeper.healthy_since > 6s;
    if (well && all_.at(id)->store().FindResult(uid) == nullptr)
      world_.Violation("job " + uid.ToString() + " SUCCEEDED at " + id_ + " without a copy at " +
                       id);
  }
}

void Database::Note(const v1::JobRecord& record) {
  world_.Later(id_, kJournalDelay, [this, record] { journal_[UidOf(record)] = record; });
}

void Database::Pump(const std::string& id) {
  if (!world_.Routed(id)) return;
  Peer& peer = peers_[id];
  PumpRecords(id, peer);
  PumpResults(id, peer);
}

void Database::PumpRecords(const std::string& id, Peer& peer) {
  if (peer.sending_records || peer.records.size() == 0 || world_.Now() < peer.retry_at) return;
  const std::vector<base::Uid> uids = peer.records.Take(256);
  peer.sending_records = true;
  world_.Call<std::vector<v1::JobRecord>>(
      id_, id,
      [this, id, records = store_->Records(uids)] { return all_.at(id)->Receive(id_, records); },
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
        for (const base::Uid& uid : uids) {
          asked.records.Add(uid, false);
          if (reply.refused) Failed(id, uid);
        }
        asked.retry_at = world_.Now() + 200ms;
        world_.Later(id_, 200ms, [this, id] { Pump(id); });
      });
}

// A result is written into its receiver's memory: that the write succeeds says nothing of whether
// its process is well.
void Database::PumpResults(const std::string& id, Peer& peer) {
  if (peer.results.size() == 0 || !peer.sending.empty()) return;
  const base::Uid uid = peer.results.Take(1).front();
  const auto artifacts = store_->FindResult(uid);
  if (artifacts == nullptr) return Failed(id, uid);
  peer.sending.insert(uid);
  database::ResultBundle bundle;
  bundle.uid = uid;
  bundle.deadline = world_.Now() + 60s;
  bundle.artifacts = *artifacts;
  for (const auto& artifact : *artifacts) bundle.total_bytes += artifact.info.size_bytes();
  // A large one takes a while.
  const Duration took =
      world_.Chance(0.2) ? world_.Between(10ms, 1500ms) : world_.Between(0ms, 5ms);
  world_.Later(id_, took, [this, id, uid, bundle] {
    peers_[id].sending.erase(uid);
    world_.Write(id_, id, [this, id, bundle] { all_.at(id)->TakeReplica(bundle); });
    Pump(id);
  });
}

std::vector<v1::JobRecord> Database::Receive(const std::string& from,
                                             const std::vector<v1::JobRecord>& records) {
  for (const v1::JobRecord& record : records) {
    world_.Tell(id_ + " receives from " + from + " " + v1::Job::State_Name(job::EndOf(record)) +
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
  world_.Tell(id_ + " cannot reach " + id + " " + uid.ToString());
  ledger_.troubled_until = world_.Now() + 12s;
  if (settlements_->Resolve(id, uid)) (void)store_->Confirm(uid);
}

void Database::Upkeep() {
  store_->Sweep([this](const v1::WorkHolder& holder) {
    return !world_.IsOver(holder.node_id(), holder.incarnation());
  });
  const auto overdue =
      settlements_->TakeOverdue(world_.Now(), [this](const std::string& id, const base::Uid& uid) {
        const Peer& peer = peers_[id];
        return peer.sending.contains(uid) || (TakesResults(id) && peer.results.contains(uid));
      });
  for (const auto& [uid, silent] : overdue) {
    world_.Tell(id_ + " waits no longer " + uid.ToString());
    ledger_.troubled_until = world_.Now() + 12s;
    if (AskNewKeepers(uid) || !store_->Confirm(uid)) continue;
    for (const std::string& id : silent) {
      peers_[id].distrusted_until = world_.Now() + 3s;
      peers_[id].results.Add(uid, false);
    }
  }
  for (const auto& [id, database] : all_) {
    if (id != id_) Pump(id);
  }
  world_.Later(id_, kUpkeep, [this] { Upkeep(); });
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
  settlements_->Begin(uid, answering, world_.Now());
  return true;
}

// Stands for the comparison of digests: sooner or later each keeper is sent what it lacks.
void Database::Compare() {
  for (const auto& [id, database] : all_) {
    if (id == id_ || !world_.Routed(id)) continue;
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
  world_.Later(id_, 4s, [this] { Compare(); });
}

void Database::TakeResult(const database::ResultBundle& bundle) {
  world_.Tell(id_ + " has the result " + bundle.uid.ToString());
  bool can_copy = false;
  for (const std::string& id : OtherKeepers(bundle.uid)) can_copy = can_copy || TakesResults(id);
  const auto outcome = store_->StoreResult(bundle, message::Kind::kResult, {.hold = can_copy});
  if (outcome.ok() && *outcome == database::StoreOutcome::kHeld) Hold(bundle.uid);
}

void Database::TakeReplica(const database::ResultBundle& bundle) {
  world_.Tell(id_ + " has a copy " + bundle.uid.ToString());
  (void)store_->StoreResult(bundle, message::Kind::kReplica);
}

}  // namespace onepiece::simulation
