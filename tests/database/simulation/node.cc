#include "tests/database/simulation/node.h"

#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "tests/database/simulation/database.h"
#include "tests/database/simulation/instance.h"
#include "tests/database/simulation/proxy.h"

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kReport = 1s;
constexpr Duration kLookPause = 100ms;
constexpr Duration kAskTimeout = 500ms;
constexpr Duration kTellTimeout = 500ms;
constexpr Duration kCopyTimeout = 250ms;
constexpr Duration kKeptTurn = 200ms;
constexpr Duration kKeptLimit = 1s;

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

Cluster::~Cluster() { world.EndAll(); }

Node::Node(std::string id, std::string stage, Cluster& cluster)
    : id_(std::move(id)),
      stage_(std::move(stage)),
      cluster_(cluster),
      view_(std::make_unique<node::ClusterView>()) {
  cluster_.manager.Subscribe(id_, [this](const Table& table) {
    if (table->epoch() > view_->routing()->epoch()) view_->SetRouting(table);
  });
}

void Node::BeginLife() {
  world().Start(id_);
  view_ = std::make_unique<node::ClusterView>();
  SetIncarnation();
  Report();
}

void Node::SetIncarnation() {
  v1::Endpoint self;
  self.set_node_id(id_);
  self.set_incarnation(++incarnation_);
  self.set_address(world().AddressOf(id_));
  view_->SetSelf(std::move(self));
}

void Node::Report() {
  const v1::Endpoint self = view_->self();
  struct Answer {
    bool is_alive = false;
    Table table;
  };
  world().Call<Answer>(
      id_, World::PlaceOf(std::string(kNodeManager) + "#1"),
      [this, self] {
        const bool alive = cluster_.manager.Report(id_, self.incarnation(), self.address(), stage_);
        return Answer{alive, cluster_.manager.table()};
      },
      [this](const World::Reply<Answer>& reply) {
        // An incarnation that was declared dead stays dead.
        const bool again = reply.answer.has_value() && !reply.answer->is_alive;
        if (again) SetIncarnation();
        // The first table is read; later ones are given.
        if (reply.answer.has_value() && view_->routing()->epoch() == 0)
          view_->SetRouting(reply.answer->table);
        world().Later(id_, again ? Duration::zero() : kReport, [this] { Report(); });
      });
}

template <typename Answer>
absl::StatusOr<Answer> Records::AskOne(const v1::Endpoint& database,
                                       std::function<absl::StatusOr<Answer>(Database&)> ask,
                                       Duration timeout) {
  const World::Place place = World::PlaceOf(database.address());
  const auto reply = cluster_.world.Ask<absl::StatusOr<Answer>>(
      id_, place,
      [&all = cluster_.databases, place, ask = std::move(ask)] { return ask(*all.at(place.node)); },
      timeout);
  if (reply.answer.has_value()) return *reply.answer;
  if (reply.refused) return absl::UnavailableError("away");
  return absl::DeadlineExceededError("no answer");
}

template <typename Answer>
absl::StatusOr<Answer> Records::Ask(const base::Uid& uid,
                                    std::function<absl::StatusOr<Answer>(Database&)> ask,
                                    bool is_write, Duration timeout) {
  std::vector<v1::Endpoint> databases = view_.routing()->DatabasesFor(uid);
  if (const auto last = last_.find(uid); last != last_.end()) {
    std::ranges::stable_partition(
        databases, [&](const v1::Endpoint& each) { return each.node_id() == last->second; });
  }
  absl::Status away, missed;
  for (const v1::Endpoint& database : databases) {
    absl::StatusOr<Answer> answer = AskOne<Answer>(database, ask, timeout);
    if (answer.ok() && is_write) last_[uid] = database.node_id();
    const bool deleted = base::GetReason(answer.status()).metadata.contains("deleted");
    if (answer.ok() || deleted) return answer;
    if (IsAway(answer.status())) {
      away = answer.status();
    } else if (absl::IsNotFound(answer.status())) {
      missed = answer.status();
    } else {
      return answer;
    }
  }
  return away.ok() && !missed.ok() ? missed : absl::UnavailableError("no database");
}

absl::StatusOr<v1::CreateJobResponse> Records::Create(const v1::JobRecord& record) {
  const base::Uid uid = *base::Uid::Parse(record.job().uid());
  auto created =
      Ask<v1::CreateJobResponse>(uid, [&ledger = cluster_.ledger, record](Database& database) {
        auto made = database.store().Create(record);
        if (made.ok() && made->created()) ledger.Granted(made->record());
        return made;
      });
  if (!created.ok() || !created->created()) return created;
  return PreferElsewhere(uid, *std::move(created));
}

v1::CreateJobResponse Records::PreferElsewhere(const base::Uid& uid,
                                               v1::CreateJobResponse created) {
  const std::vector<v1::Endpoint> databases = view_.routing()->DatabasesFor(uid);
  for (const v1::Endpoint& database : databases) {
    const auto known = AskOne<v1::JobRecord>(
        database, [uid](Database& asked) { return asked.store().Get(uid.ToString()); },
        World::kTimeout);
    const bool deleted = base::GetReason(known.status()).metadata.contains("deleted");
    const auto nanos = [](const v1::JobRecord& record) {
      return std::pair(record.job().create_time().seconds(), record.job().create_time().nanos());
    };
    const bool older = known.ok() && nanos(*known) != nanos(created.record());
    if (!deleted && !older) continue;
    if (deleted) {
      created.mutable_record()->set_deleted(true);
    } else {
      *created.mutable_record() = *known;
    }
    created.set_created(false);
    for (const v1::Endpoint& other : databases) {
      if (other.node_id() == database.node_id()) continue;
      (void)AskOne<bool>(
          other,
          [record = created.record()](Database& asked) {
            asked.store().Merge(std::vector{record});
            return true;
          },
          World::kTimeout);
    }
    break;
  }
  return created;
}

absl::StatusOr<v1::ClaimStartResponse> Records::Claim(const v1::ClaimStartRequest& request) {
  return Ask<v1::ClaimStartResponse>(*base::Uid::Parse(request.uid()),
                                     [&ledger = cluster_.ledger, request](Database& database) {
                                       auto answer = database.store().Claim(request);
                                       if (answer.ok() && answer->granted())
                                         ledger.Granted(answer->record());
                                       return answer;
                                     });
}

absl::StatusOr<v1::JobRecord> Records::Update(const v1::UpdateJobRequest& request) {
  const base::Uid uid = *base::Uid::Parse(request.uid());
  Ledger& ledger = cluster_.ledger;
  return Ask<v1::JobRecord>(uid, [&ledger, uid, request](Database& database) {
    const auto before = database.store().Get(request.uid());
    const bool holds = database.store().FindResult(uid) != nullptr;
    auto after = database.store().Update(request);
    if (before.ok() && after.ok()) ledger.Updated(request, *before, holds, *after);
    return after;
  });
}

absl::StatusOr<v1::JobRecord> Records::Get(const base::Uid& uid, Duration timeout) {
  return Ask<v1::JobRecord>(
      uid, [uid](Database& database) { return database.store().Get(uid.ToString()); },
      /*is_write=*/false, timeout);
}

// As JobRecords::Impl::AskOther.
template <typename Answer>
void Records::AskOther(const base::Uid& uid,
                       const std::function<absl::StatusOr<Answer>(Database&)>& ask) {
  for (const v1::Endpoint& database : view_.routing()->DatabasesFor(uid)) {
    if (database.node_id() == last_[uid]) continue;
    (void)AskOne<Answer>(database, ask, kCopyTimeout);
    return;
  }
}

absl::StatusOr<v1::Job> Records::Acknowledge(const base::Uid& uid) {
  const std::function<absl::StatusOr<v1::Job>(Database&)> ask = [uid](Database& database) {
    return database.store().Acknowledge(uid.ToString());
  };
  const auto job = Ask<v1::Job>(uid, ask);
  if (job.ok()) AskOther(uid, ask);
  return job;
}

absl::Status Records::Delete(const base::Uid& uid) {
  const std::function<absl::StatusOr<bool>(Database&)> ask =
      [uid](Database& database) -> absl::StatusOr<bool> {
    ONEPIECE_RETURN_IF_ERROR(database.store().Delete(uid.ToString()));
    return true;
  };
  const auto deleted = Ask<bool>(uid, ask);
  if (deleted.ok()) AskOther(uid, ask);
  return deleted.status();
}

node::KeptWork& KeptAt(Cluster& cluster, const std::string& id) {
  const auto proxy = cluster.proxies.find(id);
  return proxy != cluster.proxies.end() ? proxy->second->keeping().kept()
                                        : cluster.instances.at(id)->keeping().kept();
}

Keeping::Keeping(std::string id, Cluster& cluster, const node::ClusterView& view, Records& records)
    : id_(std::move(id)),
      cluster_(cluster),
      view_(view),
      records_(records),
      kept_(view_,
            {.ask = [this](const base::Uid& uid) { return records_.Get(uid, kAskTimeout); },
             .report =
                 [this](const v1::UpdateJobRequest& update) {
                   return records_.Update(update).status();
                 },
             .send =
                 [this](const message::Message& message) {
                   return Deliver(
                       message, kKeptTurn,
                       std::min(message.header.deadline, cluster_.world.Now() + kKeptLimit));
                 }},
            {}, cluster.world.clock()),
      settler_(
          view_,
          [this](const v1::Endpoint& keeper, const v1::SettleWorkRequest& request) {
            const World::Place place = World::PlaceOf(keeper.address());
            const auto reply = cluster_.world.Ask<bool>(
                id_, place,
                [&cluster = cluster_, place, request] {
                  for (const v1::WorkSettled& settled : request.works())
                    KeptAt(cluster, place.node).Settle(settled);
                  return true;
                },
                kTellTimeout);
            return reply.answer.has_value() ? absl::OkStatus() : absl::UnavailableError("away");
          },
          cluster.world.clock()) {
  LookAfterKept();
}

void Keeping::LookAfterKept() {
  if (kept_.items() > 0 && !std::exchange(looking_, true)) {
    cluster_.world.Spawn(id_, [this] {
      kept_.Look();
      looking_ = false;
    });
  }
  cluster_.world.Later(id_, kLookPause, [this] { LookAfterKept(); });
}

void Keeping::Completed(const message::Header& header) {
  settler_.Completed(header);
  TellKeepers();
}

void Keeping::Moved(const message::Header& header, const v1::WorkHolder& to) {
  settler_.Moved(header, to);
  TellKeepers();
}

void Keeping::TellKeepers() {
  if (std::exchange(telling_, true)) return;
  cluster_.world.Spawn(id_, [this] {
    while (settler_.pending() > 0) {
      const bool all_told = settler_.TellAll();
      cluster_.world.Sleep(all_told ? 20ms : 500ms);
    }
    telling_ = false;
  });
}

std::vector<v1::Endpoint> Keeping::Candidates(const node::Routing& table,
                                              const message::Header& header) const {
  if (header.kind == message::Kind::kResult) return table.DatabasesFor(header.uid);
  if (table.GraphOf(header.app).Predecessors(header.stage).size() > 1) {
    const auto point = table.MeetingPoint(header.app, header.stage, header.uid);
    if (!point.has_value()) return {};
    return {*point};
  }
  const auto all = table.Instances(header.app, header.stage);
  std::vector<v1::Endpoint> candidates(all.begin(), all.end());
  if (candidates.size() > 1) {
    std::ranges::rotate(
        candidates,
        candidates.begin() + static_cast<std::ptrdiff_t>(cluster_.world.Pick(candidates.size())));
  }
  return candidates;
}

World::Put Keeping::PutAt(const v1::Endpoint& endpoint, const message::Message& message,
                          std::uint64_t number) {
  const World::Place place = World::PlaceOf(endpoint.address());
  return cluster_.world.PutAt(id_, place, [&cluster = cluster_, place, message, number] {
    if (message.header.kind == message::Kind::kResult) {
      cluster.databases.at(place.node)->Deposit(message, number);
    } else {
      cluster.instances.at(place.node)->Deposit(message, number);
    }
  });
}

absl::StatusOr<node::Delivered> Keeping::Deliver(message::Message message, Duration patience,
                                                 base::MonotonicTime deadline,
                                                 const std::function<bool()>& wanted) {
  World& world = cluster_.world;
  const base::MonotonicTime until = std::min(deadline, world.Now() + patience);
  std::uint64_t number = world.Random();
  std::optional<Doubt> doubt;
  while (true) {
    const Table table = view_.routing();
    if (doubt.has_value()) {
      const v1::Endpoint& at = doubt->endpoint;
      if (table->IsOver(at.node_id(), at.incarnation(), doubt->epoch,
                        table->table().workflow_set())) {
        ++message.header.attempt;
        number = world.Random();
        doubt.reset();
      } else if (PutAt(at, message, number) == World::Put::kDone) {
        return node::Delivered{at, message.header.attempt, doubt->epoch, {}};
      }
    }
    if (!doubt.has_value()) {
      for (const v1::Endpoint& at : Candidates(*table, message.header)) {
        const World::Put put = PutAt(at, message, number);
        if (put == World::Put::kDone)
          return node::Delivered{at, message.header.attempt, table->epoch(), {}};
        if (put != World::Put::kUnknown) continue;
        doubt = Doubt{at, table->epoch()};
        break;
      }
    }
    const base::MonotonicTime now = world.Now();
    if (doubt.has_value() && now >= deadline) {
      return base::MakeError(absl::StatusCode::kDeadlineExceeded, "OUTCOME_UNKNOWN",
                             "it may have arrived", {{"node_id", doubt->endpoint.node_id()}});
    }
    if (!doubt.has_value() && (now >= until || (wanted && !wanted())))
      return absl::UnavailableError("nobody takes it");
    world.Sleep(world.Between(5ms, 50ms));
  }
}

}  // namespace onepiece::simulation
