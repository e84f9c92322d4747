#include "gui/models/pipeline_graph.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "cluster/workflow/graph.h"
#include "cluster/workflow/pool.h"
#include "gui/models/format.h"
#include "gui/models/pipeline_text.h"

namespace onepiece::gui {
namespace {

template <typename T>
void Add(std::optional<T>& sum, const std::optional<T>& number) {
  if (number.has_value()) sum = sum.value_or(0) + *number;
}

struct Place {
  std::string set, pool;
  bool operator==(const Place&) const = default;
};

/// The place of an instance: where its assignment says that it works. Before it has an assignment,
/// where plans have put it.
Place PlaceOf(const v1::Node& node) {
  Place place{node.workflow_set(), ""};
  if (!node.placement().workflow_set().empty()) place.set = node.placement().workflow_set();
  if (!node.assignment().workflow_set().empty()) place.set = node.assignment().workflow_set();
  place.pool = node.assignment().has_stage() ? workflow::PoolIdOf(node.assignment().stage())
                                             : node.placement().pool();
  return place;
}

Place PlaceOf(const v1::Placement& placement, const std::string& own_set) {
  return {placement.workflow_set().empty() ? own_set : placement.workflow_set(), placement.pool()};
}

/// "diffusion" of "diffusion/wan/tiny".
std::string StageOfPool(const std::string& pool) { return pool.substr(0, pool.find('/')); }

/// "tiny" of "diffusion/wan/tiny". It distinguishes pools of the same stage.
std::string ModelOfPool(const std::string& pool) {
  const std::size_t first = pool.find('/');
  const std::size_t second = first == std::string::npos ? first : pool.find('/', first + 1);
  return second != std::string::npos  ? pool.substr(second + 1)
         : first != std::string::npos ? pool.substr(first + 1)
                                      : pool;
}

}  // namespace

bool NodeIdLess(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const auto end_of = [&](const std::string& text, std::size_t& at) {
        while (at < text.size() && text[at] == '0') ++at;
        std::size_t end = at;
        while (end < text.size() && digit(text[end])) ++end;
        return end;
      };
      const std::size_t i_end = end_of(a, i), j_end = end_of(b, j);
      if (i_end - i != j_end - j) return i_end - i < j_end - j;
      if (const int order = a.compare(i, i_end - i, b, j, j_end - j); order != 0) return order < 0;
      i = i_end, j = j_end;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // Orders "a1" and "a01".
}

/// Makes one graph. Stages stay in a map by name until all are known; Number() then sorts them into
/// the graph.
class PipelineModel::Builder {
 public:
  Builder(PipelineModel& model, const session::Snapshot& snapshot)
      : model_(model), snapshot_(snapshot) {}

  PipelineGraph Build() {
    FindSets();
    for (const auto& name : sets_) AddStagesOf(name);
    AddInstances();
    AddGhosts();
    AddPlans();
    Number();
    for (PipelineStage& stage : graph_.stages) Sum(stage);
    AddEdges();
    return std::move(graph_);
  }

 private:
  // Set, then pool: a pool id, "" for idle, kIn or kOut.
  using Key = std::pair<std::string, std::string>;
  static constexpr const char* kIn = "\x01in";
  static constexpr const char* kOut = "\x01out";
  struct Draft {
    PipelineStage stage;
    std::vector<PipelineCard> cards;
    Totals totals;
    // Nodes that hand work on from here.
    std::vector<std::string> senders;
    // Nodes whose rings receive what comes here.
    std::vector<std::string> rings;
  };

  const v1::Cluster& cluster() const { return *snapshot_.cluster.value; }

  void FindSets() {
    std::vector<const v1::Workflow*> apps;
    for (const v1::Workflow& workflow : cluster().workflows()) apps.push_back(&workflow);
    std::sort(apps.begin(), apps.end(),
              [](const auto* a, const auto* b) { return a->app_id() < b->app_id(); });
    apps_ = std::move(apps);
    for (const v1::Node& node : cluster().nodes()) {
      newest_report_ms_ = std::max(newest_report_ms_, ToMs(node.last_report_time()));
      if (node.state() == v1::Node::DEAD) continue;
      if (node.role() == v1::INSTANCE) sets_.insert(PlaceOf(node).set);
      if (node.role() == v1::PROXY || node.role() == v1::DATABASE) {
        sets_.insert(node.workflow_set());
      }
    }
    if (snapshot_.rings.value == nullptr) return;
    for (const session::RingEntry& ring : *snapshot_.rings.value) {
      rings_.emplace(ring.node_id, &ring);
      model_.FollowRing(ring);
    }
    std::erase_if(model_.flows_, [&](const auto& flow) { return !rings_.contains(flow.first); });
  }

  Draft& Stage(const std::string& set, const std::string& pool, PipelineStage::Kind kind) {
    const auto [at, is_new] = stages_.try_emplace({set, pool});
    PipelineStage& stage = at->second.stage;
    if (is_new) {
      stage.kind = kind;
      if (kind == PipelineStage::Kind::kPool) {
        stage.pool = pool;
        stage.name = SafeText(StageOfPool(pool), 40);
        // No application is known to use the pool yet. Number() puts such pools behind all others.
        stage.rank = kNowhere;
      } else {
        stage.name = kind == PipelineStage::Kind::kIdle       ? Tr("idle")
                     : kind == PipelineStage::Kind::kEntrance ? Tr("proxies")
                                                              : Tr("databases");
      }
    }
    return at->second;
  }

  void AddStagesOf(const std::string& set) {
    if (apps_.empty()) return;
    // By pool: application, and row in it.
    std::map<std::string, std::pair<std::size_t, int>> row_of;
    std::map<std::string, std::vector<std::string>> successors;  // By pool.
    for (std::size_t app = 0; app < apps_.size(); ++app) {
      const workflow::Graph graph(*apps_[app]);
      std::map<std::string, std::string> pool_of;  // By stage.
      for (const v1::StageSpec& spec : apps_[app]->stages()) {
        const std::string pool = workflow::PoolIdOf(spec);
        pool_of[spec.stage()] = pool;
        Draft& draft = Stage(set, pool, PipelineStage::Kind::kPool);
        draft.stage.name = SafeText(spec.stage(), 40);
        draft.stage.rank = std::min(draft.stage.rank, 1);
        const QString app_id = SafeText(apps_[app]->app_id(), 64);
        if (!draft.stage.apps.contains(app_id)) draft.stage.apps << app_id;
        row_of.try_emplace(pool, app, 0);
      }
      for (const v1::StageSpec& spec : apps_[app]->stages()) {
        const std::string& pool = pool_of[spec.stage()];
        const auto next = graph.Successors(spec.stage());
        for (const std::string& stage : next) Link(set, pool, pool_of[stage], successors);
        if (next.empty()) links_.insert({{set, pool}, {set, kOut}});
      }
      for (const std::string& stage : graph.Entrances()) {
        links_.insert({{set, kIn}, {set, pool_of[stage]}});
      }
    }
    Rank(set, successors);
    GiveRows(set, row_of);
  }

  void Link(const std::string& set, const std::string& from, const std::string& to,
            std::map<std::string, std::vector<std::string>>& successors) {
    if (from == to || !links_.insert({{set, from}, {set, to}}).second) return;
    // Two applications may pass two pools in opposite orders. The order of the first application
    // counts: a link that would close a cycle is drawn, but does not count for the columns. Rank()
    // needs a graph without cycles.
    std::vector<std::string> reached = {to};
    for (std::size_t i = 0; i < reached.size(); ++i) {
      if (reached[i] == from) return;
      const std::vector<std::string> next = successors[reached[i]];
      for (const std::string& pool : next) {
        if (std::find(reached.begin(), reached.end(), pool) == reached.end()) {
          reached.push_back(pool);
        }
      }
    }
    successors[from].push_back(to);
  }

  void Rank(const std::string& set, std::map<std::string, std::vector<std::string>>& successors) {
    // Longest ways. `successors` has no cycle, so this ends after at most as many rounds as there
    // are pools.
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [pool, next] : successors) {
        const int rank = stages_.at({set, pool}).stage.rank + 1;
        for (const std::string& to : next) {
          int& its = stages_.at({set, to}).stage.rank;
          if (its < rank) its = rank, changed = true;
        }
      }
    }
  }

  void GiveRows(const std::string& set,
                std::map<std::string, std::pair<std::size_t, int>>& row_of) {
    std::set<std::tuple<std::size_t, int, int>> taken;  // App, row, rank.
    std::set<std::pair<std::size_t, int>> rows;
    for (auto& [pool, row] : row_of) {
      const int rank = stages_.at({set, pool}).stage.rank;
      while (!taken.insert({row.first, row.second, rank}).second) ++row.second;
      rows.insert(row);
    }
    for (const auto& [pool, row] : row_of) {
      stages_.at({set, pool}).stage.row =
          static_cast<int>(std::distance(rows.begin(), rows.find(row)));
    }
    int last = 0;
    for (const auto& [pool, row] : row_of) {
      last = std::max(last, stages_.at({set, pool}).stage.rank);
    }
    Stage(set, kIn, PipelineStage::Kind::kEntrance).stage.rank = 0;
    Stage(set, kOut, PipelineStage::Kind::kExit).stage.rank = last + 1;
  }

  Draft& Home(const Place& place) {
    return place.pool.empty() ? Stage(place.set, "", PipelineStage::Kind::kIdle)
                              : Stage(place.set, place.pool, PipelineStage::Kind::kPool);
  }

  void AddInstances() {
    for (const v1::Node& node : cluster().nodes()) {
      if (node.state() == v1::Node::DEAD) {
        if (node.role() == v1::INSTANCE) NoteDead(node);
        continue;
      }
      const Key in(node.workflow_set(), kIn), out(node.workflow_set(), kOut);
      if (node.role() == v1::PROXY && stages_.contains(in)) {
        stages_.at(in).senders.push_back(node.node_id());
        ++stages_.at(in).stage.present;
      } else if (node.role() == v1::DATABASE && stages_.contains(out)) {
        stages_.at(out).rings.push_back(node.node_id());
        ++stages_.at(out).stage.present;
      } else if (node.role() == v1::INSTANCE) {
        AddInstance(node);
      }
    }
    std::erase_if(model_.counted_, [&](const auto& one) { return !live_.contains(one.first); });
  }

  void AddInstance(const v1::Node& node) {
    // A node id that occurs twice counts once.
    if (!live_.insert(node.node_id()).second) return;
    const Place place = PlaceOf(node);
    Draft& draft = Home(place);
    PipelineCard card;
    card.node_id = card.key = node.node_id();
    // A node that reports no activity counts as serving once it is READY.
    const bool told = node.activity() != v1::ACTIVITY_UNSPECIFIED;
    card.state = told                              ? ActivityName(node.activity())
                 : node.state() == v1::Node::READY ? Tr("ready")
                                                   : Tr("starting");
    card.tone = told                              ? ActivityTone(node.activity())
                : node.state() == v1::Node::READY ? StatusTone::kGood
                                                  : StatusTone::kBusy;
    card.serves = node.activity() == v1::SERVING || node.activity() == v1::STUCK ||
                  (!told && node.state() == v1::Node::READY);
    card.stale = newest_report_ms_ - ToMs(node.last_report_time()) > kStaleMs;
    ReadLoad(node.load(), card);
    ReadRing(node, card);
    if (!place.pool.empty()) {
      const Totals used = model_.Count(node, place.pool, TotalsOf(node.load(), draft.stage), card);
      Merge(used, draft.totals);
    }
    own_set_[node.node_id()] = node.workflow_set();
    at_[node.node_id()] = place;
    draft.senders.push_back(node.node_id());
    draft.rings.push_back(node.node_id());
    model_.seen_[node.node_id()] = {card, place.set, place.pool, snapshot_.at_ms};
    draft.cards.push_back(std::move(card));
  }

  static void ReadLoad(const v1::NodeLoad& load, PipelineCard& card) {
    if (load.sample_unix_ms() == 0) return;  // It has not reported yet.
    card.utilization = load.utilization();
    card.source = load.utilization_source();
    if (load.workers() > 0) {
      card.workers = load.workers();
      card.running = load.running_jobs();
      card.queued = load.queued_jobs();
      card.held = load.held_jobs();
    }
    double active = 0;
    int devices = 0;
    for (const v1::DeviceLoad& device : load.devices()) {
      if (device.has_sm_active()) active += device.sm_active(), ++devices;
    }
    if (devices > 0) card.sm_active = active / devices;
  }

  /// Prefers what the ring itself answers: that is newer, and counts all of its segments. Otherwise
  /// takes the node's report.
  void ReadRing(const v1::Node& node, PipelineCard& card) const {
    const auto ring = rings_.find(node.node_id());
    if (ring != rings_.end() && ring->second->health.slots() > 0 &&
        ring->second->incarnation == node.incarnation()) {
      card.ring_used = static_cast<std::int64_t>(ring->second->health.used_slots());
      card.ring_slots = static_cast<std::int64_t>(ring->second->health.slots());
    } else if (node.load().ring_slots() > 0) {
      card.ring_used = node.load().ring_slots_used();
      card.ring_slots = node.load().ring_slots();
    }
  }

  /// What `load` counts for this pool. The instance may have served other pools before.
  static Totals TotalsOf(const v1::NodeLoad& load, const PipelineStage& stage) {
    Totals totals;
    const std::string name = StageOfPool(stage.pool);
    for (const v1::StageLoad& part : load.stages()) {
      if (part.stage() != name) continue;
      if (!stage.apps.isEmpty() && !stage.apps.contains(SafeText(part.app_id(), 64))) continue;
      totals.jobs += part.jobs();
      totals.compute_s += part.compute_s();
      totals.queued_s += part.queued_s();
      totals.transfer_s += part.transfer_s();
      for (int i = 0; i < std::min<int>(part.compute_buckets_size(), 21); ++i) {
        totals.buckets[static_cast<std::size_t>(i)] += part.compute_buckets(i);
      }
    }
    return totals;
  }

  static void Merge(const Totals& from, Totals& into) {
    into.jobs += from.jobs;
    into.compute_s += from.compute_s;
    into.queued_s += from.queued_s;
    into.transfer_s += from.transfer_s;
    for (std::size_t i = 0; i < into.buckets.size(); ++i) into.buckets[i] += from.buckets[i];
  }

  /// Remembers an instance that was dead before the console looked. How long ago it died is
  /// estimated from the reports of the others.
  void NoteDead(const v1::Node& node) {
    const std::int64_t silent_ms = newest_report_ms_ - ToMs(node.last_report_time());
    if (silent_ms > kGhostMs || model_.seen_.contains(node.node_id())) return;
    PipelineCard card;
    card.node_id = card.key = node.node_id();
    const Place place = PlaceOf(node);
    model_.seen_[node.node_id()] = {card, place.set, place.pool,
                                    snapshot_.at_ms - std::max<std::int64_t>(silent_ms, 0)};
  }

  void AddGhosts() {
    std::erase_if(model_.seen_, [&](const auto& one) {
      return snapshot_.at_ms - one.second.seen_ms >= kGhostMs;
    });
    for (const auto& [id, seen] : model_.seen_) {
      if (live_.contains(id) || !sets_.contains(seen.set)) continue;
      PipelineCard ghost;
      ghost.node_id = ghost.key = id;
      ghost.kind = PipelineCard::Kind::kLost;
      ghost.state = Tr("lost");
      ghost.tone = StatusTone::kBad;
      ghost.seen_ms = seen.seen_ms;
      Home({seen.set, seen.pool}).cards.push_back(std::move(ghost));
    }
  }

  void AddPlans() {
    if (model_.draft_ != nullptr) AddPlan(*model_.draft_);
    if (snapshot_.elasticity.value == nullptr) return;
    for (const v1::Plan& plan : snapshot_.elasticity.value->plans()) AddPlan(plan);
  }

  void AddPlan(const v1::Plan& plan) {
    const bool under_way =
        plan.state() == v1::Plan::STATE_UNSPECIFIED || plan.state() == v1::Plan::PROPOSED ||
        plan.state() == v1::Plan::RUNNING || plan.state() == v1::Plan::UNCONFIRMED ||
        plan.state() == v1::Plan::REVERTING;
    if (!under_way) return;
    for (const v1::Move& move : plan.moves()) {
      if (move.phase() == v1::Move::REVERTED || move.phase() == v1::Move::FAILED) continue;
      const bool back = plan.state() == v1::Plan::REVERTING || move.phase() == v1::Move::REVERTING;
      AddMove(move, back ? move.from() : move.to(), plan.state() == v1::Plan::UNCONFIRMED);
    }
  }

  void AddMove(const v1::Move& move, const v1::Placement& target, bool unconfirmed) {
    const auto now = at_.find(move.node_id());
    if (now == at_.end()) return;  // A dead or unknown instance does not move.
    const Place to = PlaceOf(target, own_set_.at(move.node_id()));
    auto& cards = Home(now->second).cards;
    const auto card = std::find_if(cards.begin(), cards.end(), [&](const PipelineCard& one) {
      return one.key == move.node_id();
    });
    // A draft or another plan moves it already.
    if (card->fate != PipelineCard::Fate::kStays) return;
    // The instance is where the plan wants it.
    if (to == now->second && !target.removed()) {
      if (unconfirmed) card->fate = PipelineCard::Fate::kUnconfirmed;
      return;
    }
    if (to.pool.empty()) {
      card->fate = PipelineCard::Fate::kLeaves;
      return;
    }
    card->fate = PipelineCard::Fate::kMoves;
    card->other_pool = SafeText(to.pool, 80);
    PipelineCard ghost;
    ghost.node_id = move.node_id();
    // The instance's own card has the node id as its key.
    ghost.key = "+" + move.node_id();
    ghost.kind = PipelineCard::Kind::kPlanned;
    ghost.state = Tr("planned");
    ghost.tone = StatusTone::kBusy;
    ghost.other_pool = SafeText(now->second.pool, 80);
    sets_.insert(to.set);
    Home(to).cards.push_back(std::move(ghost));
  }

  /// Puts stages and cards into the graph, in their order.
  void Number() {
    using Entry = std::pair<const Key, Draft>*;
    for (const std::string& name : sets_) {
      std::vector<Entry> mine;
      int last = -1;
      for (auto& entry : stages_) {
        if (entry.first.first != name) continue;
        mine.push_back(&entry);
        if (entry.second.stage.rank < kNowhere) last = std::max(last, entry.second.stage.rank);
      }
      if (mine.empty()) continue;
      for (Entry entry : mine) {
        PipelineStage& stage = entry->second.stage;
        // Pools of no application stand behind all columns.
        if (stage.rank == kNowhere) stage.rank = ++last;
      }
      std::map<QString, int> names;
      int rows = 0;
      for (Entry entry : mine) {
        ++names[entry->second.stage.name];
        rows = std::max(rows, entry->second.stage.row + 1);
      }
      for (Entry entry : mine) {
        PipelineStage& stage = entry->second.stage;
        // Idle instances stand in a row of their own below all others. Names that occur twice get
        // the model as well.
        if (stage.kind == PipelineStage::Kind::kIdle) {
          stage.rank = last > 0 ? 1 : 0;
          stage.row = last < 0 ? 0 : rows;
        } else if (names[stage.name] > 1) {
          stage.name += QStringLiteral(" · ") + SafeText(ModelOfPool(stage.pool), 40);
        }
      }
      std::stable_sort(mine.begin(), mine.end(), [](Entry a, Entry b) {
        const PipelineStage &x = a->second.stage, &y = b->second.stage;
        return std::tie(x.rank, x.row) < std::tie(y.rank, y.row);
      });
      graph_.sets.push_back(
          {name, static_cast<int>(graph_.stages.size()), static_cast<int>(mine.size())});
      for (Entry entry : mine) Take(entry->first, entry->second);
    }
  }

  void Take(const Key& key, Draft& draft) {
    const int index = static_cast<int>(graph_.stages.size());
    index_[key] = index;
    drafts_.push_back(&draft);
    std::sort(draft.cards.begin(), draft.cards.end(),
              [](const PipelineCard& a, const PipelineCard& b) {
                if (a.node_id != b.node_id) return NodeIdLess(a.node_id, b.node_id);
                return a.key < b.key;
              });
    draft.stage.set = static_cast<int>(graph_.sets.size()) - 1;
    draft.stage.first_card = static_cast<int>(graph_.cards.size());
    draft.stage.cards = static_cast<int>(draft.cards.size());
    graph_.stages.push_back(draft.stage);
    for (PipelineCard& card : draft.cards) {
      card.stage = index;
      graph_.cards.push_back(std::move(card));
    }
  }

  void Sum(PipelineStage& stage) {
    double busy = 0;
    int measured = 0;
    for (int i = 0; i < stage.cards; ++i) {
      const PipelineCard& card = graph_.cards[static_cast<std::size_t>(stage.first_card + i)];
      if (card.kind != PipelineCard::Kind::kLive) continue;
      ++stage.present;
      if (card.serves) ++stage.serving;
      if (card.serves && card.utilization) busy += *card.utilization, ++measured;
      Add(stage.running, card.running);
      Add(stage.workers, card.workers);
      Add(stage.queued, card.queued);
      Add(stage.ring_used, card.ring_used);
      Add(stage.ring_slots, card.ring_slots);
      Add(stage.jobs_per_s, card.jobs_per_s);
    }
    if (measured > 0) stage.busy_now = busy / measured;
    const auto index = static_cast<std::size_t>(&stage - graph_.stages.data());
    const Totals& totals = drafts_[index]->totals;
    if (totals.jobs > 0) {
      stage.service_mean_s = totals.compute_s / static_cast<double>(totals.jobs);
      stage.service_p50_s = MedianOfBuckets(totals.buckets);
    }
    if (stage.kind != PipelineStage::Kind::kPool || snapshot_.elasticity.value == nullptr) return;
    const std::string& set = graph_.sets[static_cast<std::size_t>(stage.set)].name;
    for (const v1::PoolStatus& pool : snapshot_.elasticity.value->pools()) {
      if (pool.pool() != stage.pool || pool.workflow_set() != set) continue;
      if (pool.has_utilization()) stage.rho = pool.utilization();
      stage.min_instances = pool.min_instances();
      if (pool.max_instances() > 0) stage.max_instances = pool.max_instances();
    }
  }

  void AddEdges() {
    std::map<Key, int> senders_of;  // Number of stages that send to each.
    for (const auto& [from, to] : links_) ++senders_of[to];
    for (const auto& [from, to] : links_) {
      if (!index_.contains(from) || !index_.contains(to)) continue;
      PipelineEdge edge;
      edge.from = index_.at(from);
      edge.to = index_.at(to);
      const Draft& sender = *drafts_[static_cast<std::size_t>(edge.from)];
      const Draft& receiver = *drafts_[static_cast<std::size_t>(edge.to)];
      for (const std::string& id : receiver.rings) AddRing(id, edge, senders_of[to] == 1);
      if (senders_of[to] > 1) AddFlows(sender, receiver, edge);
      if (receiver.totals.jobs > 0) {
        edge.transfer_s = receiver.totals.transfer_s / static_cast<double>(receiver.totals.jobs);
      }
      graph_.edges.push_back(edge);
    }
    std::sort(graph_.edges.begin(), graph_.edges.end(), [](const auto& a, const auto& b) {
      return std::tie(a.from, a.to) < std::tie(b.from, b.to);
    });
  }

  void AddRing(const std::string& node_id, PipelineEdge& edge, bool only_sender) const {
    const auto at = rings_.find(node_id);
    if (at == rings_.end() || at->second->health.slots() == 0) return;
    const session::RingEntry& ring = *at->second;
    Add(edge.ring_used, std::optional(static_cast<std::int64_t>(ring.health.used_slots())));
    Add(edge.ring_slots, std::optional(static_cast<std::int64_t>(ring.health.slots())));
    const double oldest_s = static_cast<double>(ring.health.oldest_age_ms()) * 1e-3;
    edge.oldest_s = std::max(edge.oldest_s.value_or(0), oldest_s);
    const bool waits = ring.health.used_slots() > 0 && ring.health.oldest_age_ms() >= kStalledMs;
    if (waits && !(ring.rates && ring.rates->messages_per_s > 0)) edge.stalled = true;
    if (!only_sender || !ring.rates) return;
    Add(edge.items_per_s, std::optional(ring.rates->messages_per_s));
    Add(edge.bytes_per_s, std::optional(ring.rates->bytes_per_s));
  }

  /// If several stages send to the same rings, a ring's own rate covers all of them. The share of
  /// `sender` comes from the ring's counts for each producer.
  void AddFlows(const Draft& sender, const Draft& receiver, PipelineEdge& edge) const {
    for (const std::string& ring : receiver.rings) {
      const auto flows = model_.flows_.find(ring);
      if (flows == model_.flows_.end()) continue;
      for (const std::string& id : sender.senders) {
        const auto flow = flows->second.senders.find(id);
        if (flow == flows->second.senders.end()) continue;
        Add(edge.items_per_s, flow->second.items_per_s);
        Add(edge.bytes_per_s, flow->second.bytes_per_s);
      }
    }
  }

  static constexpr int kNowhere = 1'000'000;

  PipelineModel& model_;
  const session::Snapshot& snapshot_;
  PipelineGraph graph_;
  std::vector<const v1::Workflow*> apps_;  // By id.
  struct SetLess {
    bool operator()(const std::string& a, const std::string& b) const { return NodeIdLess(a, b); }
  };
  std::set<std::string, SetLess> sets_;
  std::int64_t newest_report_ms_ = 0;
  std::map<std::string, const session::RingEntry*> rings_;
  std::map<Key, Draft> stages_;
  std::set<std::pair<Key, Key>> links_;
  std::set<std::string> live_;
  std::map<std::string, std::string> own_set_;
  std::map<std::string, Place> at_;
  std::map<Key, int> index_;
  std::vector<const Draft*> drafts_;  // By index in graph_.stages.
};

PipelineModel::PipelineModel() = default;
PipelineModel::~PipelineModel() = default;

void PipelineModel::SetDraft(const v1::Plan* draft) {
  draft_ = draft == nullptr ? nullptr : std::make_unique<v1::Plan>(*draft);
}

const PipelineGraph& PipelineModel::Update(const session::Snapshot& snapshot) {
  // An older snapshot comes from the past. What was seen after it must not appear there as ghosts,
  // and counts must not go back.
  if (snapshot.at_ms < at_ms_) {
    seen_.clear();
    counted_.clear();
    flows_.clear();
  }
  at_ms_ = snapshot.at_ms;
  if (snapshot.cluster.value == nullptr) {
    graph_ = {};
  } else {
    graph_ = Builder(*this, snapshot).Build();
  }
  Judge(snapshot, graph_);
  return graph_;
}

PipelineModel::Totals PipelineModel::Count(const v1::Node& node, const std::string& pool,
                                           const Totals& totals, PipelineCard& card) {
  const Sample now{node.load().sample_unix_ms(), totals};
  if (now.at_ms == 0) return {};
  Counted& counted = counted_[node.node_id()];
  // A restarted process, another pool, a clock or a count that went back, or a long silence begins
  // a new measurement.
  const bool same = counted.incarnation == node.incarnation() && counted.pool == pool &&
                    now.at_ms >= counted.newer.at_ms && totals.jobs >= counted.newer.totals.jobs &&
                    now.at_ms - counted.newer.at_ms <= 2 * kWindowMs;
  if (!same) counted = {node.incarnation(), pool, now, now};
  if (now.at_ms - counted.newer.at_ms >= kWindowMs) {
    counted.older = std::exchange(counted.newer, now);
  }
  const Totals& before = counted.older.totals;
  const double seconds = static_cast<double>(now.at_ms - counted.older.at_ms) * 1e-3;
  const std::uint64_t done = totals.jobs - before.jobs;
  constexpr double kEnough = 5;  // Seconds. Rates over less time jump.
  if (seconds >= kEnough) card.jobs_per_s = static_cast<double>(done) / seconds;
  Totals used = totals;
  if (done > 0) {
    card.measured_s = seconds;
    used.jobs = done;
    used.compute_s -= before.compute_s;
    used.queued_s -= before.queued_s;
    used.transfer_s -= before.transfer_s;
    for (std::size_t i = 0; i < used.buckets.size(); ++i) {
      used.buckets[i] -= std::min(used.buckets[i], before.buckets[i]);
    }
  }
  card.jobs = used.jobs;
  if (used.jobs == 0) return used;
  const auto jobs = static_cast<double>(used.jobs);
  card.service_mean_s = used.compute_s / jobs;
  card.service_p50_s = MedianOfBuckets(used.buckets);
  card.queued_s = used.queued_s / jobs;
  card.transfer_s = used.transfer_s / jobs;
  return used;
}

void PipelineModel::FollowRing(const session::RingEntry& ring) {
  RingFlows& flows = flows_[ring.node_id];
  // The same answer again, from another snapshot.
  if (flows.as_of_ms == ring.as_of_ms && flows.incarnation == ring.incarnation) return;
  std::map<std::string, Flow> now;
  for (const v1::RingProducer& producer : ring.health.producers()) {
    // A node may have several producers, from earlier processes.
    Flow& flow = now[producer.node_id()];
    flow.delivered += producer.delivered();
    flow.bytes += producer.delivered_bytes();
  }
  const double seconds = static_cast<double>(ring.as_of_ms - flows.as_of_ms) * 1e-3;
  if (flows.as_of_ms > 0 && seconds > 0 && flows.incarnation == ring.incarnation) {
    for (auto& [id, flow] : now) {
      const auto before = flows.senders.find(id);
      if (before == flows.senders.end() || before->second.delivered > flow.delivered ||
          before->second.bytes > flow.bytes) {
        continue;
      }
      flow.items_per_s = static_cast<double>(flow.delivered - before->second.delivered) / seconds;
      flow.bytes_per_s = static_cast<double>(flow.bytes - before->second.bytes) / seconds;
    }
  }
  flows = {ring.incarnation, ring.as_of_ms, std::move(now)};
}

}  // namespace onepiece::gui
