#include "gui/models/plan_draft.h"

#include <algorithm>
#include <utility>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

QString Name(const std::string& node_id) { return SafeText(node_id, 60); }

PoolKey KeyOf(const v1::Placement& place) { return {place.workflow_set(), place.pool()}; }

/// A pool's id begins with its stage.
std::string StageOf(const std::string& pool) { return pool.substr(0, pool.find('/')); }

/// The text as one word of a shell.
QString Quoted(std::string_view word) {
  QString text = QString::fromUtf8(word.data(), static_cast<qsizetype>(word.size()));
  return u'\'' + text.replace(u'\'', QStringLiteral("'\\''")) + u'\'';
}

}  // namespace

QString PlanDraft::WhyNotMove(const InstanceCard& card, const PoolKey& to, bool by_hand) const {
  const QString name = Name(card.node_id);
  if (!card.moving.empty())
    return Tr("%1 is part of plan %2, which has not ended").arg(name, SafeText(card.moving, 60));
  if (!to.pool.empty() && !card.pinned_stage.empty() && StageOf(to.pool) != card.pinned_stage) {
    return Tr("%1 serves %2 alone: its configuration says so")
        .arg(name, SafeText(card.pinned_stage, 60));
  }
  if (by_hand) return {};
  if (card.place.pinned()) return Tr("%1 is pinned").arg(name);
  if (card.place.removed()) return Tr("%1 was drained to be removed").arg(name);
  if (card.activity == v1::QUARANTINED) return Tr("%1 could not load its model").arg(name);
  return {};
}

QString PlanDraft::MoveTo(const std::string& node_id, const PoolKey& to) {
  const InstanceCard* card = board_.Find(node_id);
  if (card == nullptr) return Tr("%1 is not in the cluster").arg(Name(node_id));
  Moves moves = moves_;
  std::erase_if(moves, [&](const DraftMove& move) { return move.node_id == node_id; });
  if (card->key() != to || card->place.removed()) {
    if (QString why = WhyNotMove(*card, to, true); !why.isEmpty()) return why;
    DraftMove move{node_id, card->incarnation, card->place, card->place};
    move.to.set_workflow_set(to.workflow_set);
    move.to.set_pool(to.pool);
    move.to.clear_removed();  // A move by hand keeps the pin.
    const auto after = [&](const DraftMove& other) {
      return board_.Find(other.node_id) > card;  // `moves` keeps the order of the cards.
    };
    moves.insert(std::ranges::find_if(moves, after), std::move(move));
  } else if (moves.size() == moves_.size()) {
    return Tr("%1 is there already").arg(Name(node_id));
  }
  Set(std::move(moves));
  return {};
}

QString PlanDraft::Add(const PoolKey& pool) {
  const PoolColumn* column = board_.Find(pool);
  if (column == nullptr) return Tr("There is no such pool");
  for (const DraftMove& move : moves_) {
    if (KeyOf(move.from) == pool && !move.from.removed())
      return MoveTo(std::string(move.node_id), pool);
  }
  if (pool.pool.empty()) return Tr("Take instances out of a pool: they become idle");
  if (column->max_instances > 0 && CountAfter(pool) >= column->max_instances)
    return Tr("%1 takes at most %2").arg(PoolName(pool)).arg(column->max_instances);
  QString why = Tr("No instance is idle: take one out of another pool, or drag one here");
  // Instances of the pool's own workflow set come first.
  for (const bool own_set : {true, false}) {
    for (const InstanceCard& card : board_.cards) {
      const v1::Placement place = PlaceOf(card);
      if (!place.pool().empty() || (place.workflow_set() == pool.workflow_set) != own_set) continue;
      const QString why_not = WhyNotMove(card, pool, false);
      if (why_not.isEmpty()) return MoveTo(card.node_id, pool);
      why = why_not;
    }
  }
  return why;
}

QString PlanDraft::Remove(const PoolKey& pool) {
  const PoolColumn* column = board_.Find(pool);
  if (column == nullptr) return Tr("There is no such pool");
  for (auto move = moves_.rbegin(); move != moves_.rend(); ++move) {
    if (KeyOf(move->to) != pool || move->to.removed()) continue;
    Moves moves = moves_;
    moves.erase(moves.begin() + (moves_.rend() - move - 1));
    Set(std::move(moves));
    return {};
  }
  if (pool.pool.empty()) return Tr("Add to another pool: idle instances go there");
  if (CountAfter(pool) <= column->min_instances)
    return Tr("At least %1 stay in %2").arg(column->min_instances).arg(PoolName(pool));
  const PoolKey idle{pool.workflow_set, ""};
  QString why = Tr("%1 has no instance").arg(PoolName(pool));
  // Instances without work go first: they need no drain.
  for (const bool works : {false, true}) {
    for (auto card = board_.cards.rbegin(); card != board_.cards.rend(); ++card) {
      if (card->key() != pool || Find(card->node_id) != nullptr || (card->held_jobs > 0) != works)
        continue;
      const QString why_not = WhyNotMove(*card, idle, false);
      if (why_not.isEmpty()) return MoveTo(card->node_id, idle);
      why = why_not;
    }
  }
  return why;
}

void PlanDraft::Replace(const v1::Plan& proposed) {
  Moves moves;
  for (const InstanceCard& card : board_.cards) {
    for (const v1::Move& move : proposed.moves()) {
      if (move.node_id() != card.node_id) continue;
      DraftMove& made =
          moves.emplace_back(DraftMove{card.node_id, card.incarnation, card.place, move.to()});
      // An empty workflow set means the instance's own.
      if (made.to.workflow_set().empty()) made.to.set_workflow_set(card.place.workflow_set());
    }
  }
  Set(std::move(moves));
}

void PlanDraft::Clear() {
  if (!moves_.empty()) Set({});
}

void PlanDraft::Renew() {
  Moves moves;
  for (DraftMove move : moves_) {
    const InstanceCard* card = board_.Find(move.node_id);
    if (card == nullptr || SamePlace(card->place, move.to) ||
        !WhyNotMove(*card, KeyOf(move.to), true).isEmpty())
      continue;
    move.from = card->place;
    move.incarnation = card->incarnation;
    moves.push_back(std::move(move));
  }
  Set(std::move(moves));
}

void PlanDraft::Set(Moves moves) {
  past_.push_back(std::exchange(moves_, std::move(moves)));
  if (past_.size() > kMaxUndo) past_.erase(past_.begin());
  future_.clear();
}

void PlanDraft::Undo() {
  if (past_.empty()) return;
  future_.push_back(std::exchange(moves_, std::move(past_.back())));
  past_.pop_back();
}

void PlanDraft::Redo() {
  if (future_.empty()) return;
  past_.push_back(std::exchange(moves_, std::move(future_.back())));
  future_.pop_back();
}

const DraftMove* PlanDraft::Find(const std::string& node_id) const {
  const auto found = std::ranges::find(moves_, node_id, &DraftMove::node_id);
  return found == moves_.end() ? nullptr : &*found;
}

v1::Placement PlanDraft::PlaceOf(const InstanceCard& card) const {
  const DraftMove* move = Find(card.node_id);
  return move != nullptr ? move->to : card.place;
}

int PlanDraft::CountAfter(const PoolKey& pool) const {
  return static_cast<int>(std::ranges::count_if(
      board_.cards, [&](const InstanceCard& card) { return KeyOf(PlaceOf(card)) == pool; }));
}

int PlanDraft::CountNow(const PoolKey& pool) const {
  return static_cast<int>(std::ranges::count(board_.cards, pool, &InstanceCard::key));
}

QStringList PlanDraft::Problems() const {
  QStringList problems;
  for (const DraftMove& move : moves_) {
    const InstanceCard* card = board_.Find(move.node_id);
    if (card == nullptr) continue;  // Stale() says so.
    if (QString why = WhyNotMove(*card, KeyOf(move.to), true); !why.isEmpty()) problems << why;
  }
  for (const PoolColumn& column : board_.columns) {
    if (column.key.pool.empty()) continue;
    const int now = CountNow(column.key), after = CountAfter(column.key);
    if (after < now && after < column.min_instances) {
      problems << Tr("%1 would have %2, at least %3 stay")
                      .arg(PoolName(column.key))
                      .arg(after)
                      .arg(column.min_instances);
    }
    if (after > now && column.max_instances > 0 && after > column.max_instances) {
      problems << Tr("%1 would have %2, it takes at most %3")
                      .arg(PoolName(column.key))
                      .arg(after)
                      .arg(column.max_instances);
    }
  }
  return problems;
}

QStringList PlanDraft::Notes() const {
  QStringList notes;
  for (const DraftMove& move : moves_) {
    if (move.to.pinned()) notes << Tr("%1 stays pinned where it goes").arg(Name(move.node_id));
  }
  return notes;
}

QStringList PlanDraft::Stale() const {
  QStringList lines;
  for (const DraftMove& move : moves_) {
    const InstanceCard* card = board_.Find(move.node_id);
    const QString name = Name(move.node_id);
    if (card == nullptr) {
      lines << Tr("%1 has left the cluster").arg(name);
    } else if (!SamePlace(card->place, move.from)) {
      lines << Tr("%1 was in %2 and is in %3 now")
                   .arg(name, PlaceName(move.from), PlaceName(card->place));
    } else if (card->incarnation != move.incarnation) {
      lines << Tr("%1 has been started again").arg(name);
    }
  }
  return lines;
}

v1::ProposePlanRequest PlanDraft::ToRequest() const {
  v1::ProposePlanRequest request;
  for (const DraftMove& move : moves_) {
    v1::Move& added = *request.add_moves();
    added.set_node_id(move.node_id);
    *added.mutable_to() = move.to;
  }
  return request;
}

QString PlanDraft::ToCommandLine() const {
  QString line = QStringLiteral("onepiece rebalance plan");
  for (const DraftMove& move : moves_) {
    const std::string& set = move.to.workflow_set();
    const std::string pool = move.to.pool().empty() ? "idle" : move.to.pool();
    line += u' ' + Quoted(move.node_id + "=" + (set.empty() ? "" : set + ":") + pool);
  }
  return line;
}

}  // namespace onepiece::gui
