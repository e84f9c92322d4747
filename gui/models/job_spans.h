// Where the time of one job went, over all stages and nodes: the rows and bars of its Gantt chart.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <QStringList>
#include <cstdint>
#include <string>
#include <vector>

#include "onepiece/v1/generation.pb.h"

namespace onepiece::gui {

enum class SpanKind { kWait, kCompute, kTransfer, kOther };
/// "wait", "compute", "transfer", "other"
QString SpanKindName(SpanKind kind);

struct SpanBar {
  SpanKind kind = SpanKind::kOther;
  double start_s = 0, end_s = 0;  ///< Seconds after the start of the first span.
  QString operation;              ///< As the node named it.
  QString detail;                 ///< The span's attributes: "to=instance-2, bytes=4096".
};

/// What one node did for one stage. If a stage ran on two nodes, each node has a row.
struct SpanRow {
  QString stage, node;
  std::vector<SpanBar> bars;  ///< Ordered by start.
};

struct JobSpans {
  std::vector<SpanRow> rows;  ///< Ordered by the start of the first bar.
  double length_s = 0;
  double wait_s = 0, compute_s = 0, transfer_s = 0;  ///< Sums. Spans that overlap both count.
  QStringList unreachable;                           ///< Nodes that did not answer.
  bool truncated = false;                            ///< The trace has more than kMaxSpans spans.
};
inline constexpr int kMaxSpans = 5000;

JobSpans SpansOf(const v1::GetJobTraceResponse& trace);

}  // namespace onepiece::gui
