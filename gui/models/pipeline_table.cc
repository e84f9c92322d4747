#include "gui/models/pipeline_table.h"

#include <functional>

#include "gui/models/format.h"
#include "gui/models/pipeline_text.h"

namespace onepiece::gui {
namespace {

using Column = PipelineTable::Column;

Column Text(const QString& title, const QString& tip,
            std::function<QString(const PipelineRow&)> text) {
  return {title, tip, [text = std::move(text)](const PipelineRow& row, int role) -> QVariant {
            if (role == Qt::DisplayRole || role == kSortRole) return text(row);
            return {};
          }};
}

template <typename T>
Column Number(const QString& title, const QString& tip, std::optional<T> PipelineCard::*member) {
  return {title, tip,
          [member](const PipelineRow& row, int role) -> QVariant {
            const std::optional<T>& number = row.card.*member;
            if (role == kSortRole) {
              if (!number) return QVariant::fromValue(nullptr);
              if constexpr (std::is_same_v<T, double>) return *number;
              return static_cast<qlonglong>(*number);
            }
            if (role != Qt::DisplayRole) return {};
            if (!number) return Tr("N/A");
            return QString::number(*number);
          },
          Qt::AlignRight | Qt::AlignVCenter};
}

QString Plan(const PipelineCard& card) {
  switch (card.fate) {
    case PipelineCard::Fate::kMoves:
      return QStringLiteral("moves");
    case PipelineCard::Fate::kLeaves:
      return QStringLiteral("leaves");
    case PipelineCard::Fate::kUnconfirmed:
      return QStringLiteral("unconfirmed");
    case PipelineCard::Fate::kStays:
      break;
  }
  return card.kind == PipelineCard::Kind::kPlanned ? QStringLiteral("comes") : QString();
}

}  // namespace

std::unique_ptr<PipelineTable> MakePipelineTable() {
  std::vector<Column> columns = {
      Text(Tr("Set"), Tr("Workflow set"), [](const auto& row) { return SafeText(row.set); }),
      Text(Tr("Stage"), Tr("Stage"), [](const auto& row) { return row.stage.name; }),
      Text(Tr("Pool"), Tr("Pool id"), [](const auto& row) { return SafeText(row.stage.pool); }),
      Text(Tr("Applications"), Tr("Whose jobs pass here"),
           [](const auto& row) { return row.stage.apps.join(u' '); }),
      Text(Tr("Instance"), Tr("Node id"),
           [](const auto& row) { return SafeText(row.card.node_id); }),
      Text(Tr("State"), Tr("What it is about"), [](const auto& row) { return row.card.state; }),
      Text(Tr("Plan"), Tr("What a plan does with it: comes, moves, leaves, unconfirmed"),
           [](const auto& row) { return Plan(row.card); }),
      Number(Tr("Utilisation"), Tr("Busy share since its last report, 0 to 1"),
             &PipelineCard::utilization),
      Text(Tr("Source"), Tr("Where the utilisation comes from"),
           [](const auto& row) {
             return row.card.utilization ? SourceName(row.card.source) : QString();
           }),
      Number(Tr("SM active"), Tr("Mean of its devices that say so, 0 to 1"),
             &PipelineCard::sm_active),
      Number(Tr("In flight"), Tr("Jobs that it computes"), &PipelineCard::running),
      Number(Tr("Workers"), Tr("Jobs that it can compute at a time"), &PipelineCard::workers),
      Number(Tr("Queued"), Tr("Jobs that wait in it"), &PipelineCard::queued),
      Number(Tr("Held"), Tr("Jobs that it holds in any form"), &PipelineCard::held),
      Number(Tr("Ring used"), Tr("Slots"), &PipelineCard::ring_used),
      Number(Tr("Ring slots"), Tr("Slots"), &PipelineCard::ring_slots),
      Number(Tr("Jobs/s"), Tr("Finished, over the last half minute or more"),
             &PipelineCard::jobs_per_s),
      Number(Tr("Service p50 (s)"), Tr("Median of a job's time in the stage"),
             &PipelineCard::service_p50_s),
      Number(Tr("Service mean (s)"), Tr("Mean of a job's time in the stage"),
             &PipelineCard::service_mean_s),
      Number(Tr("Wait mean (s)"), Tr("Arrival to start"), &PipelineCard::queued_s),
      Number(Tr("Transfer mean (s)"), Tr("Sender's encoding to arrival"),
             &PipelineCard::transfer_s)};
  return std::make_unique<PipelineTable>(std::move(columns), [](const PipelineRow& row) {
    return QString::fromStdString(row.set + "/" + row.stage.pool + "/" + row.card.key);
  });
}

void Update(PipelineTable& table, const PipelineGraph& graph) {
  std::vector<PipelineRow> rows;
  rows.reserve(graph.cards.size());
  for (const PipelineCard& card : graph.cards) {
    const PipelineStage& stage = graph.stages[static_cast<std::size_t>(card.stage)];
    rows.push_back({graph.sets[static_cast<std::size_t>(stage.set)].name, stage, card});
  }
  table.Update(std::move(rows), std::equal_to<PipelineRow>());
}

}  // namespace onepiece::gui
