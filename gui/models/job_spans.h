// Where the time of one job went, over all stages and nodes: the rows and bars of its Gantt chart.
//
// Threading  Pure functions.
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
  double start_s = 0, end_s = 0;  ///< From the first span's start.
  QString operation;              ///< As the node named it.
  QString detail;                 ///< Attributes, "to=instance-2, bytes=4096".
};

/// What one node did for one stage; a stage that ran twice has a row for each node.
struct SpanRow {
  QString stage, node;
  std::vector<SpanBar> bars;  ///< By start.
};

struct JobSpans {
  std::vector<SpanRow> rows;  ///< By the start of their first bar.
  double length_s = 0;
  double wait_s = 0, compute_s = 0, transfer_s = 0;  ///< Sums; what overlaps counts twice.
  QStringList unreachable;                           ///< Nodes that did not answer.
  bool truncated = false;                            ///< More than kMaxSpans were told.
};
inline constexpr int kMaxSpans = 5000;

JobSpans SpansOf(const v1::GetJobTraceResponse& trace);

}  // namespace onepiece::gui
