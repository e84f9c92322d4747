#include "gui/app/side_panels.h"

#include <QHeaderView>
#include <QPushButton>
#include <QScrollBar>
#include <QSignalBlocker>
#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "gui/app/commands.h"
#include "gui/models/format.h"
#include "gui/models/pipeline_graph.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

using Properties = std::vector<std::pair<QString, QString>>;

QString RoleName(v1::Role role) {
  switch (role) {
    case v1::NODE_MANAGER:
      return Tr("NodeManager");
    case v1::PROXY:
      return Tr("proxy");
    case v1::INSTANCE:
      return Tr("instance");
    case v1::DATABASE:
      return Tr("database");
    default:
      return Tr("unknown");
  }
}

QString NodeStateName(const v1::Node& node) {
  if (node.state() == v1::Node::DEAD) return Tr("lost");
  if (node.role() == v1::INSTANCE && node.activity() != v1::ACTIVITY_UNSPECIFIED) {
    return ActivityName(node.activity());
  }
  return node.state() == v1::Node::READY ? Tr("ready") : Tr("starting");
}

StatusTone NodeTone(const v1::Node& node) {
  if (node.state() == v1::Node::DEAD) return StatusTone::kBad;
  if (node.role() == v1::INSTANCE && node.activity() != v1::ACTIVITY_UNSPECIFIED) {
    return ActivityTone(node.activity());
  }
  return node.state() == v1::Node::READY ? StatusTone::kGood : StatusTone::kBusy;
}

const v1::Node* FindNode(const session::Snapshot& snapshot, const std::string& id) {
  if (snapshot.cluster.value == nullptr) return nullptr;
  for (const v1::Node& node : snapshot.cluster.value->nodes()) {
    if (node.node_id() == id) return &node;
  }
  return nullptr;
}

void AddLoad(const v1::NodeLoad& load, std::int64_t now_ms, Properties& list) {
  list.emplace_back(Tr("Utilisation"), FormatShare(load.utilization()));
  if (load.workers() > 0) {
    list.emplace_back(Tr("Jobs"), Tr("%1 running, %2 queued, %3 held")
                                      .arg(load.running_jobs())
                                      .arg(load.queued_jobs())
                                      .arg(load.held_jobs()));
    list.emplace_back(Tr("Workers"), QString::number(load.workers()));
  }
  if (load.ring_slots() > 0) {
    list.emplace_back(Tr("Ring"),
                      Tr("%1 of %2 slots").arg(load.ring_slots_used()).arg(load.ring_slots()));
  }
  list.emplace_back(Tr("Memory"), FormatBytes(static_cast<double>(load.memory_bytes())));
  if (load.no_progress_ms() > 0) {
    list.emplace_back(Tr("No progress for"),
                      FormatSeconds(static_cast<double>(load.no_progress_ms()) * 1e-3));
  }
  if (!load.idle_work().empty()) list.emplace_back(Tr("Idle work"), SafeText(load.idle_work()));
  list.emplace_back(Tr("Measured"), FormatAge(load.sample_unix_ms(), now_ms));
}

Properties OfNode(const std::string& id, const session::Snapshot& snapshot) {
  const v1::Node* node = FindNode(snapshot, id);
  if (node == nullptr) return {};
  Properties list = {{Tr("Role"), RoleName(node->role())},
                     {Tr("State"), ToneGlyph(NodeTone(*node)) + u' ' + NodeStateName(*node)}};
  if (!node->detail().empty()) list.emplace_back(Tr("Why"), SafeText(node->detail()));
  if (node->has_assignment() && node->assignment().has_stage()) {
    list.emplace_back(Tr("Stage"), SafeText(node->assignment().stage().stage()));
  }
  if (node->has_placement()) {
    list.emplace_back(Tr("Placed in"), node->placement().pool().empty()
                                           ? Tr("idle pool")
                                           : SafeText(node->placement().pool()));
    if (node->placement().pinned()) list.emplace_back(Tr("Pinned"), Tr("yes"));
  }
  list.emplace_back(Tr("Workflow set"), SafeText(node->workflow_set()));
  list.emplace_back(Tr("Address"), SafeText(node->address()));
  list.emplace_back(Tr("Process"),
                    Tr("%1 (incarnation %2)").arg(node->pid()).arg(node->incarnation()));
  if (node->has_load()) AddLoad(node->load(), snapshot.at_ms, list);
  for (const v1::DeviceLoad& device : node->load().devices()) {
    list.emplace_back(SafeText(device.device(), 24), device.product().empty()
                                                         ? Tr("unknown product")
                                                         : SafeText(device.product()));
  }
  return list;
}

Properties OfRing(const std::string& id, const session::Snapshot& snapshot) {
  if (snapshot.rings.value == nullptr) return {};
  for (const session::RingEntry& ring : *snapshot.rings.value) {
    if (ring.node_id != id) continue;
    const v1::RingHealth& health = ring.health;
    Properties list = {
        {Tr("Slots"), Tr("%1 of %2").arg(health.used_slots()).arg(health.slots())},
        {Tr("Bytes"), Tr("%1 of %2")
                          .arg(FormatBytes(static_cast<double>(health.used_bytes())),
                               FormatBytes(static_cast<double>(health.capacity_bytes())))},
        {Tr("Oldest message"), FormatSeconds(static_cast<double>(health.oldest_age_ms()) * 1e-3)},
        {Tr("Delivered"), QString::number(health.counters().delivered())},
        {Tr("Corrupted"), QString::number(health.counters().corrupted())},
        {Tr("Stalls"), QString::number(health.counters().stalls())},
        {Tr("Producers"), QString::number(health.producers_size())}};
    if (ring.rates.has_value())
      list.emplace_back(Tr("Rate"), FormatRate(ring.rates->messages_per_s));
    if (!ring.error.empty()) list.emplace_back(Tr("Not newer because"), SafeText(ring.error));
    return list;
  }
  return {};
}

Properties OfPool(const std::string& id, const session::Snapshot& snapshot) {
  if (snapshot.elasticity.value == nullptr) return {};
  for (const v1::PoolStatus& pool : snapshot.elasticity.value->pools()) {
    if (pool.workflow_set() + "/" + pool.pool() != id) continue;
    QString most =
        pool.max_instances() == 0 ? Tr("no limit") : QString::number(pool.max_instances());
    return {
        {Tr("Instances"), QString::number(pool.instances())},
        {Tr("At least"), QString::number(pool.min_instances())},
        {Tr("At most"), most},
        {Tr("Utilisation"), pool.has_utilization() ? FormatShare(pool.utilization())
                                                   : Tr("not measured for a whole window yet")}};
  }
  return {};
}

Properties OfJob(const std::string& uid, const session::Snapshot& snapshot) {
  if (snapshot.jobs.value == nullptr) return {};
  for (const session::JobEntry& entry : snapshot.jobs.value->jobs) {
    const v1::Job& job = *entry.job;
    if (job.uid() != uid) continue;
    QString state = JobStateName(job.state());
    if (entry.certainty == session::Certainty::kReconciling) state = Tr("unknown (reconciling)");
    if (entry.certainty == session::Certainty::kUnknownAtEnd)
      state = Tr("unknown at the end of the recording");
    Properties list = {{Tr("State"), state}, {Tr("Application"), SafeText(job.app_id())}};
    if (!job.stage().empty()) {
      list.emplace_back(
          Tr("Stage"),
          Tr("%1, step %2 of %3").arg(SafeText(job.stage())).arg(job.step()).arg(job.steps()));
    }
    if (job.has_error()) {
      list.emplace_back(Tr("Error"), SafeText(job.error().reason() + ": " + job.error().message()));
    }
    list.emplace_back(Tr("Created"), FormatAge(job.create_time().seconds() * 1000, snapshot.at_ms));
    list.emplace_back(Tr("Workflow set"), SafeText(job.workflow_set()));
    return list;
  }
  return {};
}

}  // namespace

Properties PropertiesOf(const QString& entity, const session::Snapshot& snapshot) {
  const QString kind = entity.section(u'/', 0, 0);
  const std::string id = entity.section(u'/', 1).toStdString();
  if (kind == u"node" || kind == u"database") return OfNode(id, snapshot);
  if (kind == u"ring") return OfRing(id, snapshot);
  if (kind == u"pool") return OfPool(id, snapshot);
  if (kind == u"job") return OfJob(id, snapshot);
  return {};
}

EntityTree::EntityTree(ShownCluster& shown_cluster, QWidget* parent)
    : QTreeWidget(parent), shown_cluster_(shown_cluster) {
  setObjectName(QStringLiteral("entities"));
  setAccessibleName(tr("Entities"));
  setHeaderHidden(true);
  setUniformRowHeights(true);
  setIndentation(fontMetrics().height() * 4 / 5);  // Names need the room.
  connect(&shown_cluster_, &ShownCluster::Changed, this, &EntityTree::Draw);
  connect(this, &QTreeWidget::currentItemChanged, this, [this](QTreeWidgetItem* item) {
    const QString entity = item == nullptr ? QString() : item->data(0, Qt::UserRole).toString();
    if (!entity.isEmpty() && !entity.startsWith(u"group/")) Q_EMIT Selected(entity);
  });
  connect(this, &QTreeWidget::itemActivated, this, [this](QTreeWidgetItem* item) {
    const QString entity = item->data(0, Qt::UserRole).toString();
    if (!entity.startsWith(u"group/")) Q_EMIT Opened(entity);
  });
  Draw();
}

QSize EntityTree::sizeHint() const {
  return {fontMetrics().averageCharWidth() * 34, fontMetrics().height() * 20};
}

QTreeWidgetItem* EntityTree::Item(QTreeWidgetItem* parent, const QString& entity,
                                  const QString& text) {
  seen_.insert(entity, true);
  QTreeWidgetItem* item = items_.value(entity);
  if (item != nullptr && item->parent() != parent && parent != nullptr) {
    // The instance has moved to another stage. The selection must stay, and must not be signalled
    // as a new one.
    const QSignalBlocker quiet(this);
    QTreeWidgetItem* current = currentItem();
    item->parent()->removeChild(item);
    parent->addChild(item);
    if (current == item) setCurrentItem(item);
  }
  if (item == nullptr) {
    item = parent == nullptr ? new QTreeWidgetItem(this) : new QTreeWidgetItem(parent);
    item->setData(0, Qt::UserRole, entity);
    item->setExpanded(true);
    items_.insert(entity, item);
  }
  if (item->text(0) != text) item->setText(0, text);
  return item;
}

void EntityTree::Draw() {
  const auto& cluster = shown_cluster_.snapshot()->cluster.value;
  if (cluster == drawn_) return;
  drawn_ = cluster;
  seen_.clear();
  static const v1::Cluster kNone;
  std::vector<const v1::Node*> nodes;
  for (const v1::Node& node : (cluster == nullptr ? kNone : *cluster).nodes())
    nodes.push_back(&node);
  std::map<std::string, int> places;  // Stages in the order in which jobs pass them.
  for (const v1::Workflow& workflow : (cluster == nullptr ? kNone : *cluster).workflows()) {
    int place = 0;
    for (const v1::StageSpec& stage : workflow.stages()) places.emplace(stage.stage(), place++);
  }
  const auto rank = [&](const v1::Node* node) {
    const bool idle = !node->assignment().has_stage();
    const auto place = places.find(node->assignment().stage().stage());
    return std::tuple(node->role() == v1::INSTANCE       ? 0
                      : node->role() == v1::NODE_MANAGER ? 99
                                                         : static_cast<int>(node->role()),
                      std::string_view(node->workflow_set()), idle,
                      place == places.end() ? 1000 : place->second);
  };
  std::sort(nodes.begin(), nodes.end(), [&](const v1::Node* a, const v1::Node* b) {
    const auto left = rank(a), right = rank(b);
    return left != right ? left < right : NodeIdLess(a->node_id(), b->node_id());
  });
  for (const v1::Node* node : nodes) {
    QTreeWidgetItem* group = nullptr;
    if (node->role() == v1::INSTANCE) {
      const std::string& set = node->workflow_set();
      QTreeWidgetItem* sets =
          Item(nullptr, QStringLiteral("group/set/") + QString::fromStdString(set),
               tr("Workflow set %1").arg(SafeText(set, 40)));
      const std::string stage =
          node->assignment().has_stage() ? node->assignment().stage().stage() : "";
      group = Item(sets,
                   QStringLiteral("group/stage/%1/%2")
                       .arg(QString::fromStdString(set), QString::fromStdString(stage)),
                   stage.empty() ? tr("idle pool") : SafeText(stage, 40));
    } else {
      group = Item(nullptr, QStringLiteral("group/role/%1").arg(node->role()),
                   node->role() == v1::PROXY      ? tr("Proxies")
                   : node->role() == v1::DATABASE ? tr("Databases")
                                                  : tr("NodeManager"));
    }
    QTreeWidgetItem* item = Item(
        group, QStringLiteral("node/") + QString::fromStdString(node->node_id()),
        QStringLiteral("%1 %2 · %3")
            .arg(ToneGlyph(NodeTone(*node)), SafeText(node->node_id(), 40), NodeStateName(*node)));
    const QBrush colour(ToneColor(NodeTone(*node), palette()));
    if (item->foreground(0) != colour) item->setForeground(0, colour);
  }
  // Children go before their groups. A group whose nodes are gone is empty by then.
  for (const bool groups : {false, true}) {
    const QStringList known = items_.keys();
    for (const QString& entity : known) {
      const bool gone = !seen_.contains(entity) && entity.startsWith(u"group/") == groups;
      if (gone && items_[entity]->childCount() == 0) delete items_.take(entity);
    }
  }
}

Inspector::Inspector(ShownCluster& shown_cluster, CommandList& commands, QWidget* parent)
    : QWidget(parent),
      shown_cluster_(shown_cluster),
      commands_(commands),
      title_(new QLabel(this)),
      note_(new QLabel(this)),
      table_(std::make_unique<KeyedTable<Property>>(
          std::vector<KeyedTable<Property>::Column>{
              {tr("Property"),
               {},
               [](const Property& p, int role) {
                 return role == Qt::DisplayRole ? QVariant(p.first) : QVariant();
               }},
              {tr("Value"),
               {},
               [](const Property& p, int role) {
                 return role == Qt::DisplayRole || role == Qt::ToolTipRole ? QVariant(p.second)
                                                                           : QVariant();
               }}},
          [](const Property& p) { return p.first; })),
      view_(new QTableView(this)),
      buttons_(new QVBoxLayout) {
  setObjectName(QStringLiteral("inspector"));
  title_->setTextFormat(Qt::PlainText);
  title_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  QFont bold = title_->font();
  bold.setBold(true);
  title_->setFont(bold);
  note_->setWordWrap(true);
  note_->setTextFormat(Qt::PlainText);
  note_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
  view_->setModel(table_.get());
  view_->setAccessibleName(tr("Properties of what is selected"));
  view_->horizontalHeader()->setStretchLastSection(true);
  view_->verticalHeader()->hide();
  view_->verticalHeader()->setMinimumSectionSize(fontMetrics().height() * 3 / 2);
  view_->setShowGrid(false);
  view_->setVerticalScrollMode(QAbstractItemView::ScrollPerPixel);
  view_->setTabKeyNavigation(false);
  view_->setCornerButtonEnabled(false);
  auto* layout = new QVBoxLayout(this);
  layout->addWidget(title_);
  layout->addWidget(note_, 1);
  layout->addWidget(view_, 1);
  layout->addLayout(buttons_);
  connect(&shown_cluster_, &ShownCluster::Changed, this, &Inspector::Draw);
  connect(&shown_cluster_, &ShownCluster::ModeChanged, this, &Inspector::MakeButtons);
  connect(&shown_cluster_, &ShownCluster::LinkChanged, this, &Inspector::MakeButtons);
  Draw();
}

QSize Inspector::sizeHint() const {
  return {fontMetrics().averageCharWidth() * 44, fontMetrics().height() * 20};
}

void Inspector::Inspect(const QString& entity) {
  entity_ = entity;
  Draw();
  MakeButtons();
}

void Inspector::Draw() {
  Properties properties;
  if (!entity_.isEmpty()) properties = PropertiesOf(entity_, *shown_cluster_.snapshot());
  const bool gone = properties.empty();
  title_->setText(SafeText(entity_.toStdString(), 80));
  title_->setVisible(!entity_.isEmpty());
  note_->setText(entity_.isEmpty() ? tr("Nothing is selected. Choose a node on the left, or press "
                                        "Enter on a row.")
                                   : tr("It is not in the cluster at this instant."));
  note_->setVisible(gone);
  view_->setVisible(!gone);
  int name_width = 0;
  for (const Property& property : properties) {
    name_width = std::max(name_width, view_->fontMetrics().horizontalAdvance(property.first));
  }
  // Names are never cut. Values wrap into the next line.
  view_->horizontalHeader()->resizeSection(0, name_width + fontMetrics().averageCharWidth() * 2);
  table_->Update(std::move(properties), std::equal_to<Property>());
  view_->resizeRowsToContents();
}

void Inspector::MakeButtons() {
  while (QLayoutItem* item = buttons_->takeAt(0)) {
    // Deleted later, because a click on one of the buttons may have led here.
    item->widget()->deleteLater();
    delete item;
  }
  if (entity_.isEmpty()) return;
  auto* open = new QPushButton(tr("Open its page"), this);
  connect(open, &QPushButton::clicked, this, [this] { Q_EMIT Opened(entity_); });
  buttons_->addWidget(open);
  const QString kind = entity_.section(u'/', 0, 0) + u'.';
  QString reason = shown_cluster_.WhyNoChange();
  for (const CommandEntry& entry : commands_.entries()) {
    if (!entry.command.id.startsWith(kind) || entry.view == nullptr) continue;
    auto* button = new QPushButton(entry.command.title, this);
    const QString why = commands_.WhyNot(entry.command);
    button->setEnabled(why.isEmpty());
    button->setToolTip(why.isEmpty() ? entry.command.cli : SafeTip(why));
    button->setAccessibleDescription(why.isEmpty() ? entry.command.cli : why);
    // A missing scope keeps an operator longer than the mode does.
    if (!why.isEmpty()) reason = why;
    connect(button, &QPushButton::clicked, this, [this, id = entry.command.id, view = entry.view] {
      view->Focus(entity_);
      commands_.Run(id);
    });
    buttons_->addWidget(button);
  }
  if (!reason.isEmpty()) {
    auto* label = new QLabel(tr("No changes: %1").arg(reason), this);
    label->setWordWrap(true);
    buttons_->addWidget(label);
  }
}

}  // namespace onepiece::gui
