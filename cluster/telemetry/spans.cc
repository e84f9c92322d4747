#include "cluster/telemetry/spans.h"

#include <algorithm>
#include <limits>
#include <map>

#include "cluster/base/mutex.h"
#include "cluster/base/utf8.h"
#include "nlohmann/json.hpp"

namespace onepiece::telemetry {
namespace {

constexpr std::size_t kMaxAttributes = 16;
constexpr std::size_t kMaxTextBytes = 256;

std::int64_t UnixNs(base::WallTime time) {
  return time.time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

Spans::Spans(std::string node, base::Clock& clock, std::size_t capacity)
    : node_(std::move(node)), clock_(clock), capacity_(capacity) {}

void Spans::Record(const base::Uid& uid, v1::Span span) {
  span.set_uid(uid.ToString());
  span.set_node(node_);
  span.set_operation(base::ToUtf8(span.operation(), kMaxTextBytes));
  span.set_stage(base::ToUtf8(span.stage(), kMaxTextBytes));
  // A protobuf map has no order. Sorting decides which attributes survive the limit.
  std::map<std::string, std::string> sorted(span.attributes().begin(), span.attributes().end());
  span.clear_attributes();
  for (const auto& [key, value] : sorted) {
    if (span.attributes().size() == kMaxAttributes) break;
    (*span.mutable_attributes())[base::ToUtf8(key, kMaxTextBytes)] =
        base::ToUtf8(value, kMaxTextBytes);
  }
  const base::MutexLock lock(mutex_);
  if (spans_.size() >= capacity_) spans_.pop_front();
  spans_.emplace_back(uid, std::move(span));
}

std::vector<v1::Span> Spans::Find(const base::Uid& uid) const {
  std::vector<v1::Span> found;
  {
    const base::MutexLock lock(mutex_);
    for (const auto& [owner, span] : spans_) {
      if (owner == uid) found.push_back(span);
    }
  }
  std::ranges::stable_sort(found, {}, [](const v1::Span& span) { return span.start_unix_ns(); });
  return found;
}

ScopedSpan::ScopedSpan(Spans& spans, const base::Uid& uid, std::string_view operation,
                       std::string_view stage)
    : spans_(spans), uid_(uid) {
  span_.set_operation(std::string(operation));
  span_.set_stage(std::string(stage));
  span_.set_start_unix_ns(UnixNs(spans_.clock().WallNow()));
}

ScopedSpan::~ScopedSpan() {
  span_.set_end_unix_ns(UnixNs(spans_.clock().WallNow()));
  spans_.Record(uid_, std::move(span_));
}

void ScopedSpan::Set(std::string_view attribute, std::string_view value) {
  (*span_.mutable_attributes())[std::string(attribute)] = std::string(value);
}

std::string WriteChromeTrace(std::span<const v1::Span> spans) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const v1::Span& span : spans) origin = std::min(origin, span.start_unix_ns());
  auto events = nlohmann::json::array();
  const auto name_row = [&](const char* what, int pid, int tid, const std::string& name) {
    events.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}});
  };
  // The events of one thread row must nest. Operations that run side by side therefore get rows of
  // their own.
  std::map<std::string, std::pair<int, std::map<std::string, int>>> nodes;
  for (const v1::Span& span : spans) {
    const int next_pid = static_cast<int>(nodes.size()) + 1;
    const auto [node, new_node] =
        nodes.try_emplace(span.node(), next_pid, std::map<std::string, int>());
    auto& [pid, rows] = node->second;
    if (new_node) name_row("process_name", pid, 0, span.node());
    const std::string title =
        span.stage().empty() ? span.operation() : span.stage() + ": " + span.operation();
    const auto [row, new_row] = rows.try_emplace(title, static_cast<int>(rows.size()) + 1);
    if (new_row) name_row("thread_name", pid, row->second, title);
    nlohmann::json arguments = {{"uid", span.uid()}, {"stage", span.stage()}};
    for (const auto& [key, value] : span.attributes()) arguments[key] = value;
    const std::int64_t duration_ns =
        std::max<std::int64_t>(0, span.end_unix_ns() - span.start_unix_ns());
    events.push_back({{"ph", "X"},
                      {"name", span.operation()},
                      {"cat", "onepiece"},
                      {"pid", pid},
                      {"tid", row->second},
                      {"ts", static_cast<double>(span.start_unix_ns() - origin) / 1000},
                      {"dur", static_cast<double>(duration_ns) / 1000},
                      {"args", std::move(arguments)}});
  }
  const nlohmann::json document = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace onepiece::telemetry
