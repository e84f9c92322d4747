#include "cluster/database/replicator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/database/placement.h"
#include "cluster/job/job_record.h"

namespace onepiece::database {
namespace {

/// How often the routing is read when nothing else happens.
constexpr base::Duration kUpkeepInterval = std::chrono::seconds(1);

void Add(const PeerStats& part, PeerStats& sum) {
  sum.records_sent += part.records_sent;
  sum.results_sent += part.results_sent;
  sum.failures += part.failures;
  sum.dropped += part.dropped;
  sum.records_waiting += part.records_waiting;
  sum.results_waiting += part.results_waiting;
}

Peer::What WhatOf(Change change) {
  return change == Change::kRecord ? Peer::What::kRecord : Peer::What::kResult;
}

}  // namespace

Replicator::Replicator(const node::ClusterView& cluster, ReplicatorOptions options,
                       base::Clock& clock)
    : cluster_(cluster),
      options_(std::move(options)),
      clock_(clock),
      settlements_(base::Scaled(options_.confirm_timeout), base::Scaled(options_.hold_limit)) {}

Replicator::~Replicator() { Stop(); }

void Replicator::Start(JobStore& store, Peer::Ways ways, Confirm confirm) {
  store_ = &store;
  ways_.emplace(ways);
  confirm_ = std::move(confirm);
  {
    const base::MutexLock lock(mutex_);
    running_ = true;
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { Upkeep(stop); });
}

void Replicator::Stop() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  std::shared_ptr<const View> last;
  {
    const base::MutexLock lock(mutex_);
    running_ = false;
    last = std::move(view_);
  }
  // Outside the lock, because the peers' threads may be waiting for it.
  if (last == nullptr) return;
  for (const auto& [id, peer] : last->peers) peer->Stop();
}

void Replicator::Enqueue(const base::Uid& uid, Change change) {
  const std::shared_ptr<const View> view = CurrentView();
  if (view == nullptr) return;
  for (const auto& [peer, alive] : TargetsOf(*view, uid)) peer->Enqueue(uid, WhatOf(change));
}

bool Replicator::CanCopy(const base::Uid& uid) {
  const std::shared_ptr<const View> view = CurrentView();
  return view != nullptr && std::ranges::any_of(TargetsOf(*view, uid), [](const auto& target) {
           return target.second && target.first->TakesResults();
         });
}

std::set<std::string> Replicator::KeepersThat(bool (Peer::*can)() const, const View& view,
                                              const base::Uid& uid) const {
  std::set<std::string> keepers;
  for (const auto& [peer, alive] : TargetsOf(view, uid)) {
    if (alive && (peer->*can)()) keepers.insert(peer->node_id());
  }
  return keepers;
}

void Replicator::Await(const base::Uid& uid, const std::set<std::string>& keepers) {
  const base::MutexLock lock(mutex_);
  settlements_.Begin(uid, keepers, clock_.Now());
  changed_.NotifyAll();
}

void Replicator::Hold(const base::Uid& uid) {
  const std::shared_ptr<const View> view = CurrentView();
  std::set<std::string> keepers;
  if (view != nullptr) keepers = KeepersThat(&Peer::TakesResults, *view, uid);
  Await(uid, keepers);
  if (view == nullptr) return;
  for (const auto& [peer, alive] : TargetsOf(*view, uid)) {
    peer->Enqueue(
        uid, keepers.contains(peer->node_id()) ? Peer::What::kUrgentResult : Peer::What::kResult);
  }
}

bool Replicator::Settle(const base::Uid& uid) {
  const std::shared_ptr<const View> view = CurrentView();
  if (view == nullptr) return false;
  const std::set<std::string> keepers = KeepersThat(&Peer::Answers, *view, uid);
  if (keepers.empty()) return false;
  Await(uid, keepers);
  for (const std::string& node_id : keepers)
    view->peers.at(node_id)->Enqueue(uid, Peer::What::kUrgentRecord);
  return true;
}

std::vector<v1::JobRecord> Replicator::Receive(const std::string& node_id,
                                               std::span<const v1::JobRecord> records) {
  store_->Merge(records);
  std::vector<v1::JobRecord> answers;
  for (const v1::JobRecord& theirs : records) {
    const auto uid = base::Uid::Parse(theirs.job().uid());
    if (!uid.has_value()) continue;
    const bool waits = WaitsFor(node_id, *uid);
    if (!waits && job::IsTerminal(theirs.job().state())) continue;
    std::vector<v1::JobRecord> ours = store_->Records(std::vector{*uid});
    if (ours.empty()) continue;
    if (waits && Agrees(ours.front(), theirs, NeedsBytes(node_id)) && Resolve(node_id, *uid)) {
      (void)confirm_(*uid);
      ours = store_->Records(std::vector{*uid});
    }
    if (!ours.empty() && IsAnswered(ours.front(), theirs))
      answers.push_back(std::move(ours.front()));
  }
  return answers;
}

void Replicator::EnqueueFor(const std::string& node_id, const base::Uid& uid, Change change) {
  const std::shared_ptr<const View> view = CurrentView();
  if (view == nullptr) return;
  const auto found = view->peers.find(node_id);
  if (found != view->peers.end()) found->second->Enqueue(uid, WhatOf(change));
}

bool Replicator::IsIdle(const std::string& node_id) {
  const std::shared_ptr<const View> view = CurrentView();
  if (view == nullptr) return true;
  const auto found = view->peers.find(node_id);
  return found == view->peers.end() || found->second->IsIdle();
}

PeerStats Replicator::stats() const {
  const base::MutexLock lock(mutex_);
  PeerStats sum = forgotten_;
  if (view_ == nullptr) return sum;
  for (const auto& [id, peer] : view_->peers) Add(peer->stats(), sum);
  return sum;
}

std::vector<v1::DatabasePeer> Replicator::peers() {
  std::vector<v1::DatabasePeer> peers;
  const std::shared_ptr<const View> view = CurrentView();
  if (view == nullptr) return peers;
  for (const auto& [id, peer] : view->peers) {
    const PeerStats stats = peer->stats();
    v1::DatabasePeer& told = peers.emplace_back();
    told.set_node_id(id);
    told.set_alive(node::FindPlace(view->alive, id) != nullptr);
    told.set_waiting_records(stats.records_waiting);
    told.set_waiting_results(stats.results_waiting);
  }
  return peers;
}

std::shared_ptr<const Replicator::View> Replicator::CurrentView() {
  const base::MutexLock lock(mutex_);
  if (!running_) return nullptr;
  std::shared_ptr<const node::Routing> routing = cluster_.routing();
  if (view_ == nullptr || view_->routing != routing) view_ = MakeView(std::move(routing));
  return view_;
}

std::shared_ptr<const Replicator::View> Replicator::MakeView(
    std::shared_ptr<const node::Routing> routing) {
  auto view = std::make_shared<View>();
  view->routing = std::move(routing);
  if (view_ != nullptr) view->peers = view_->peers;
  for (const v1::Endpoint& database : view->routing->table().databases()) {
    const std::string& id = database.node_id();
    view->alive.push_back(node::PlaceOf(database));
    away_since_.erase(id);
    if (id == options_.node_id || view->peers.contains(id)) continue;
    if (view->peers.size() >= kMaxPeers) {
      spdlog::error("op=replicate peer={} is one database too many: it gets no copies", id);
      continue;
    }
    view->peers[id] = std::make_shared<Peer>(
        cluster_, options_.node_id, PeerOptions{.node_id = id}, *store_, *ways_,
        Peer::Events{.failed = [this, id](const base::Uid& uid) { Failed(id, uid); },
                     .answered = [this, id](const auto& records) { (void)Receive(id, records); }},
        clock_);
  }
  view->known = view->alive;
  for (const auto& [id, peer] : view->peers) {
    if (node::FindPlace(view->alive, id) != nullptr) continue;
    const node::DatabasePlace* last =
        view_ == nullptr ? nullptr : node::FindPlace(view_->known, id);
    view->known.push_back(last == nullptr ? node::DatabasePlace{.node_id = id} : *last);
    away_since_.emplace(id, clock_.Now());
  }
  return view;
}

std::vector<std::pair<Peer*, bool>> Replicator::TargetsOf(const View& view,
                                                          const base::Uid& uid) const {
  std::vector<std::pair<Peer*, bool>> targets;
  const auto add = [&](const Places& databases, bool alive) {
    for (const std::string* id : KeepersOf(uid, databases, options_.copies)) {
      const auto peer = view.peers.find(*id);
      if (peer == view.peers.end()) continue;  // This instance.
      const bool is_alive = node::FindPlace(view.alive, *id) != nullptr;
      if (is_alive == alive) targets.emplace_back(peer->second.get(), alive);
    }
  };
  add(view.alive, true);
  if (view.known.size() > view.alive.size()) add(view.known, false);
  return targets;
}

bool Replicator::WaitsFor(const std::string& node_id, const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  return settlements_.WaitsFor(node_id, uid);
}

// A peer that does not take results in time need not have them to agree.
bool Replicator::NeedsBytes(const std::string& node_id) {
  if (!options_.bytes_needed) return false;
  const std::shared_ptr<const View> view = CurrentView();
  if (view == nullptr) return true;
  const auto peer = view->peers.find(node_id);
  return peer == view->peers.end() || peer->second->TakesResults();
}

bool Replicator::Resolve(const std::string& node_id, const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  return settlements_.Resolve(node_id, uid);
}

void Replicator::Failed(const std::string& node_id, const base::Uid& uid) {
  if (Resolve(node_id, uid)) (void)ConfirmAlone(uid);
}

// If a peer agreed before, the job has ended already and Confirm returns false.
bool Replicator::ConfirmAlone(const base::Uid& uid) {
  if (!confirm_(uid)) return false;
  ++confirmed_alone_;
  return true;
}

std::vector<Settlements::Overdue> Replicator::TakeOverdue() {
  return settlements_.TakeOverdue(
      clock_.Now(), [this](const std::string& node_id, const base::Uid& uid)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                          const auto peer = view_->peers.find(node_id);
                          return peer != view_->peers.end() && peer->second->IsSendingResult(uid);
                        });
}

// A database that is no keeper, or no longer, may not know what the keepers have agreed on: it asks
// them until they answer.
bool Replicator::AskNewKeepers(const base::Uid& uid) {
  const std::shared_ptr<const View> view = CurrentView();
  if (view == nullptr || Keeps(uid, options_.node_id, view->alive, options_.copies)) return false;
  const std::set<std::string> keepers = KeepersThat(&Peer::Answers, *view, uid);
  if (keepers.empty() || store_->FindResult(uid) == nullptr) return false;
  Await(uid, keepers);
  for (const std::string& node_id : keepers) {
    view->peers.at(node_id)->Enqueue(uid, Peer::What::kUrgentResult);
    view->peers.at(node_id)->Enqueue(uid, Peer::What::kUrgentRecord);
  }
  return true;
}

// Confirms an end when its time is over.
void Replicator::GiveUp(const Settlements::Overdue& overdue) {
  const base::Uid& uid = overdue.uid;
  if (AskNewKeepers(uid) || !ConfirmAlone(uid) || overdue.silent.empty()) return;
  const std::shared_ptr<const View> view = CurrentView();
  if (view == nullptr) return;
  // Keepers tell only other keepers of their copies. When this database is no keeper, silence means
  // nothing.
  const bool would_hear = Keeps(uid, options_.node_id, view->alive, options_.copies);
  for (const std::string& node_id : overdue.silent) {
    const auto peer = view->peers.find(node_id);
    if (peer == view->peers.end() || !would_hear) continue;
    spdlog::warn("op=replicate uid={} peer={} it did not agree to the job's end in time",
                 uid.ToString(), node_id);
    peer->second->Distrust();
    peer->second->Enqueue(uid, Peer::What::kResult);
  }
}

void Replicator::Upkeep(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    (void)CurrentView();
    ForgetPeers();
    std::vector<Settlements::Overdue> over;
    {
      base::MutexLock lock(mutex_);
      const base::MonotonicTime now = clock_.Now();
      base::MonotonicTime next = now + kUpkeepInterval;
      next = std::min(next, settlements_.next_due().value_or(next));
      clock_.WaitUntil(changed_, lock, stop, next, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return settlements_.next_due().value_or(base::MonotonicTime::max()) <= clock_.Now();
      });
      over = TakeOverdue();
    }
    for (const Settlements::Overdue& overdue : over) GiveUp(overdue);
  }
}

void Replicator::ForgetPeers() {
  std::vector<std::shared_ptr<Peer>> gone;
  {
    const base::MutexLock lock(mutex_);
    const base::MonotonicTime now = clock_.Now();
    auto view = std::make_shared<View>(*view_);
    for (auto it = away_since_.begin(); it != away_since_.end();) {
      if (now - it->second < base::Scaled(options_.forget_after)) {
        ++it;
        continue;
      }
      const auto peer = view->peers.find(it->first);
      Add(peer->second->stats(), forgotten_);
      gone.push_back(peer->second);
      view->peers.erase(peer);
      std::erase_if(view->known,
                    [&](const node::DatabasePlace& place) { return place.node_id == it->first; });
      it = away_since_.erase(it);
    }
    if (gone.empty()) return;
    view_ = std::move(view);
    forgotten_.records_waiting = forgotten_.results_waiting = 0;
  }
  for (const std::shared_ptr<Peer>& peer : gone) peer->Stop();
}

}  // namespace onepiece::database
