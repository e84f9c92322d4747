#include "gui/models/pool_board.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <tuple>
#include <utility>

#include "cluster/workflow/pool.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

/// A sort key that puts "instance-10" after "instance-9".
auto ByNumber(std::string_view name) {
  std::size_t digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
  return std::make_tuple(name.substr(0, digits), name.size(), name.substr(digits));
}

v1::Placement PlaceOf(const v1::Node& node) {
  v1::Placement place = node.placement();
  if (!node.has_placement() && node.assignment().has_stage())
    place.set_pool(workflow::PoolIdOf(node.assignment().stage()));
  if (place.workflow_set().empty()) place.set_workflow_set(node.workflow_set());
  return place;
}

void AddCards(const v1::Cluster& cluster, PoolBoard& board) {
  for (const v1::Node& node : cluster.nodes()) {
    if (node.role() != v1::INSTANCE || node.state() == v1::Node::DEAD) continue;
    InstanceCard& card = board.cards.emplace_back();
    card.node_id = node.node_id();
    card.incarnation = node.incarnation();
    card.place = PlaceOf(node);
    card.pinned_stage = node.pinned_stage();
    card.activity = node.activity();
    card.detail = node.detail();
    if (node.has_load()) card.utilization = node.load().utilization();
    card.held_jobs = node.load().held_jobs();
  }
  std::ranges::sort(board.cards, {},
                    [](const InstanceCard& card) { return ByNumber(card.node_id); });
}

void AddPools(const v1::Elasticity& elasticity, PoolBoard& board) {
  board.plan_revision = elasticity.plan_revision();
  for (const v1::PoolStatus& pool : elasticity.pools()) {
    PoolColumn& column = board.columns.emplace_back();
    column.key = {pool.workflow_set(), pool.pool()};
    column.app_ids.assign(pool.app_ids().begin(), pool.app_ids().end());
    column.min_instances = pool.min_instances();
    column.max_instances = pool.max_instances();
    if (pool.has_utilization()) column.utilization = pool.utilization();
  }
  for (const v1::Plan& plan : elasticity.plans()) {
    for (const v1::Move& move : plan.moves()) {
      const auto card = std::ranges::find(board.cards, move.node_id(), &InstanceCard::node_id);
      if (card == board.cards.end()) continue;
      card->moving = plan.plan_id();
      card->phase = move.phase();
    }
  }
}

QString Name(const InstanceCard& card) { return SafeText(card.node_id, 60); }

void AddCardChanges(const InstanceCard& was, const InstanceCard& is, QStringList& lines) {
  if (was.incarnation != is.incarnation) lines << Tr("%1 has been started again").arg(Name(is));
  if (!SamePlace(was.place, is.place)) {
    lines << Tr("%1: %2 → %3").arg(Name(is), PlaceName(was.place), PlaceName(is.place));
  } else if (is.moving != was.moving) {
    lines << (is.moving.empty() ? Tr("%1 is no longer part of plan %2")
                                : Tr("%1 is part of plan %2 now"))
                 .arg(Name(is), SafeText(is.moving.empty() ? was.moving : is.moving, 60));
  }
}

}  // namespace

const InstanceCard* PoolBoard::Find(const std::string& node_id) const {
  const auto found = std::ranges::find(cards, node_id, &InstanceCard::node_id);
  return found == cards.end() ? nullptr : &*found;
}

const PoolColumn* PoolBoard::Find(const PoolKey& key) const {
  const auto found = std::ranges::find(columns, key, &PoolColumn::key);
  return found == columns.end() ? nullptr : &*found;
}

PoolBoard MakePoolBoard(const session::Snapshot& snapshot) {
  PoolBoard board;
  if (snapshot.cluster.value != nullptr) AddCards(*snapshot.cluster.value, board);
  if (snapshot.elasticity.value != nullptr) AddPools(*snapshot.elasticity.value, board);
  // An instance in a pool that the elasticity service does not list must be visible, so its pool
  // gets a column.
  for (const InstanceCard& card : board.cards) {
    if (board.Find(card.key()) == nullptr) board.columns.push_back({.key = card.key()});
  }
  std::vector<std::string> sets;
  for (const PoolColumn& column : board.columns) sets.push_back(column.key.workflow_set);
  std::ranges::sort(sets);
  sets.erase(std::ranges::unique(sets).begin(), sets.end());
  for (const std::string& set : sets) {
    if (board.Find(PoolKey{set, ""}) == nullptr) board.columns.push_back({.key = {set, ""}});
  }
  std::ranges::stable_sort(board.columns, {}, [](const PoolColumn& column) {
    return std::pair(std::string_view(column.key.workflow_set), column.key.pool.empty());
  });
  return board;
}

QStringList ChangesBetween(const PoolBoard& before, const PoolBoard& now) {
  QStringList lines;
  for (const InstanceCard& was : before.cards) {
    const InstanceCard* is = now.Find(was.node_id);
    if (is == nullptr) {
      lines << Tr("%1 has left").arg(Name(was));
    } else {
      AddCardChanges(was, *is, lines);
    }
  }
  for (const InstanceCard& is : now.cards) {
    if (before.Find(is.node_id) == nullptr)
      lines << Tr("%1 has come: %2").arg(Name(is), PlaceName(is.place));
  }
  for (const PoolColumn& is : now.columns) {
    const PoolColumn* was = before.Find(is.key);
    if (was == nullptr ||
        (was->min_instances == is.min_instances && was->max_instances == is.max_instances))
      continue;
    const auto most = [](int max) { return max == 0 ? Tr("any") : QString::number(max); };
    lines << Tr("%1: limits %2 to %3, were %4 to %5")
                 .arg(PoolName(is.key))
                 .arg(is.min_instances)
                 .arg(most(is.max_instances))
                 .arg(was->min_instances)
                 .arg(most(was->max_instances));
  }
  return lines;
}

QString PoolName(const PoolKey& key) {
  const QString pool = key.pool.empty() ? Tr("idle") : SafeText(key.pool, 120);
  return key.workflow_set.empty() || key.workflow_set == "default"
             ? pool
             : SafeText(key.workflow_set, 60) + u':' + pool;
}

QString PlaceName(const v1::Placement& place) {
  const QString name =
      place.removed() ? Tr("removed") : PoolName({place.workflow_set(), place.pool()});
  return place.pinned() ? Tr("%1 (pinned)").arg(name) : name;
}

bool SamePlace(const v1::Placement& a, const v1::Placement& b) {
  return a.workflow_set() == b.workflow_set() && a.pool() == b.pool() && a.pinned() == b.pinned() &&
         a.removed() == b.removed();
}

}  // namespace onepiece::gui
