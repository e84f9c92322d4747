#include "gui/models/job_spans.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

SpanKind KindOf(const std::string& operation) {
  if (operation == "queue") return SpanKind::kWait;
  if (operation == "compute") return SpanKind::kCompute;
  if (operation == "send" || operation == "store" || operation == "fetch")
    return SpanKind::kTransfer;
  return SpanKind::kOther;
}

QString DetailOf(const v1::Span& span) {
  QStringList parts;
  for (const auto& [name, value] : span.attributes()) {
    parts.append(SafeText(name, 40) + u'=' + SafeText(value, 80));
  }
  parts.sort();
  return parts.join(QStringLiteral(", "));
}

double& SumOf(JobSpans& spans, SpanKind kind, double& none) {
  switch (kind) {
    case SpanKind::kWait:
      return spans.wait_s;
    case SpanKind::kCompute:
      return spans.compute_s;
    case SpanKind::kTransfer:
      return spans.transfer_s;
    case SpanKind::kOther:
      break;
  }
  return none;
}

}  // namespace

QString SpanKindName(SpanKind kind) {
  switch (kind) {
    case SpanKind::kWait:
      return Tr("wait");
    case SpanKind::kCompute:
      return Tr("compute");
    case SpanKind::kTransfer:
      return Tr("transfer");
    case SpanKind::kOther:
      return Tr("other");
  }
  return {};
}

JobSpans SpansOf(const v1::GetJobTraceResponse& trace) {
  JobSpans made;
  for (const std::string& node : trace.unreachable_nodes()) {
    made.unreachable.append(SafeText(node, 60));
  }
  std::int64_t begin_ns = std::numeric_limits<std::int64_t>::max();
  std::vector<const v1::Span*> spans;
  for (const v1::Span& span : trace.spans()) {
    // Spans come from other processes: what has no time, or ends before it starts, is left out.
    if (span.start_unix_ns() <= 0 || span.end_unix_ns() < span.start_unix_ns()) continue;
    if (static_cast<int>(spans.size()) == kMaxSpans) {
      made.truncated = true;
      break;
    }
    spans.push_back(&span);
    begin_ns = std::min(begin_ns, span.start_unix_ns());
  }
  std::stable_sort(spans.begin(), spans.end(), [](const v1::Span* a, const v1::Span* b) {
    return a->start_unix_ns() < b->start_unix_ns();
  });
  std::map<std::pair<std::string, std::string>, std::size_t> rows;
  double none = 0;
  for (const v1::Span* span : spans) {
    const auto [at, fresh] = rows.try_emplace({span->stage(), span->node()}, made.rows.size());
    if (fresh) made.rows.push_back({SafeText(span->stage(), 40), SafeText(span->node(), 60), {}});
    SpanBar bar{.kind = KindOf(span->operation()),
                .start_s = static_cast<double>(span->start_unix_ns() - begin_ns) * 1e-9,
                .end_s = static_cast<double>(span->end_unix_ns() - begin_ns) * 1e-9,
                .operation = SafeText(span->operation(), 40),
                .detail = DetailOf(*span)};
    SumOf(made, bar.kind, none) += bar.end_s - bar.start_s;
    made.length_s = std::max(made.length_s, bar.end_s);
    made.rows[at->second].bars.push_back(std::move(bar));
  }
  return made;
}

}  // namespace onepiece::gui
