#include "gui/models/series_feed.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cluster/base/status.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

/// Two ticks of a recording. With shorter buckets, a tick that comes a little late would leave one
/// empty.
constexpr std::int64_t kMinBucketMs = 2000;
constexpr std::int64_t kSampleMs = 1000;

}  // namespace

SeriesFeed::SeriesFeed(ShownCluster& shown_cluster, SeriesFeedOptions options, QObject* parent)
    : QObject(parent),
      shown_cluster_(shown_cluster),
      options_(options),
      bucket_ms_(std::max(kMinBucketMs,
                          (options.span_ms + options.max_points - 1) / options.max_points)) {}

void SeriesFeed::Want(std::vector<Wanted> wanted) {
  const bool same = std::ranges::equal(wanted, wanted_, {}, &Wanted::name, &Wanted::name);
  wanted_ = std::move(wanted);
  if (same) return;
  ++want_;
  answer_.reset();
  status_ = absl::OkStatus();
  asked_ms_ = 0;
  std::erase_if(seen_, [this](const auto& seen) {
    return std::ranges::find(wanted_, seen.first, &Wanted::name) == wanted_.end();
  });
  Compose();
}

void SeriesFeed::LookForOtherSource() {
  const Source source{shown_cluster_.session().get(), shown_cluster_.recording().get()};
  if (source == source_) return;
  // What was seen stays if only the recording is another one.
  if (source.session != source_.session) seen_.clear();
  source_ = source;
  ++want_;
  answer_.reset();
  status_ = absl::OkStatus();
  asked_ms_ = 0;
}

void SeriesFeed::Refresh() {
  LookForOtherSource();
  const session::Snapshot& snapshot = *shown_cluster_.snapshot();
  if (snapshot.at_ms == 0 || wanted_.empty()) return;
  now_ms_ = snapshot.at_ms;
  if (shown_cluster_.live()) Sample(snapshot);
  const bool due = asked_ms_ == 0 || std::abs(now_ms_ - asked_ms_) >= options_.refresh_ms;
  if (!due) return;
  if (shown_cluster_.recording() == nullptr) {
    asked_ms_ = now_ms_;
    Compose();
  } else if (asking_ != want_) {
    AskRecording();
  }
}

void SeriesFeed::Sample(const session::Snapshot& snapshot) {
  if (snapshot.at_ms < seen_ms_) seen_.clear();  // The clock was set back.
  if (snapshot.at_ms - seen_ms_ < kSampleMs && !seen_.empty()) return;
  seen_ms_ = snapshot.at_ms;
  for (const Wanted& wanted : wanted_) {
    if (!wanted.now) continue;
    const double value = wanted.now(snapshot);
    auto& points = seen_[wanted.name];
    points.push_back({snapshot.at_ms, value, value, value});
    const auto old = std::ranges::find_if(points, [&](const history::SeriesPoint& point) {
      return point.at_ms >= snapshot.at_ms - options_.span_ms;
    });
    points.erase(points.begin(), old);
  }
}

void SeriesFeed::AskRecording() {
  asked_ms_ = now_ms_;
  asking_ = want_;
  std::vector<std::string> names;
  for (const Wanted& wanted : wanted_) names.push_back(wanted.name);
  // Buckets begin at multiples of their length. They therefore stay where they are while time goes
  // on, and lines do not flicker.
  const std::int64_t to_ms = now_ms_ / bucket_ms_ * bucket_ms_ + bucket_ms_;
  const auto count = static_cast<int>(std::max<std::int64_t>(1, options_.span_ms / bucket_ms_));
  const history::Interval interval{std::max<std::int64_t>(0, to_ms - count * bucket_ms_), to_ms};
  shown_cluster_.Read<Answer>(
      this,
      [names = std::move(names), interval,
       count](history::Recording& recording) -> absl::StatusOr<Answer> {
        Answer answer;
        for (const std::string& name : names) {
          auto points = recording.Series(name, interval, count);
          if (points.ok()) {
            answer.series.emplace_back(*std::move(points));
          } else if (absl::IsNotFound(points.status())) {
            answer.series.emplace_back(std::nullopt);
          } else {
            return points.status();
          }
        }
        return answer;
      },
      [this, want = want_, at_ms = now_ms_](absl::StatusOr<Answer> answer) {
        // Other series, or another cluster, are wanted by now.
        if (want != want_) return;
        asking_.reset();
        if (answer.ok()) answered_ms_ = at_ms;
        Take(std::move(answer));
      });
}

void SeriesFeed::Take(absl::StatusOr<Answer> answer) {
  status_ = answer.status();
  if (answer.ok()) answer_ = *std::move(answer);
  Compose();
  Refresh();  // The shown instant may have moved since the question.
}

void SeriesFeed::Compose() {
  interval_ = {now_ms_ - options_.span_ms, now_ms_};
  series_.clear();
  bool all_missing = answer_.has_value() && !wanted_.empty();
  std::int64_t since_ms = 0;
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    std::vector<history::SeriesPoint> points;
    if (answer_ && answer_->series[i]) {
      points = *answer_->series[i];
      all_missing = false;
    }
    const auto seen = seen_.find(wanted_[i].name);
    if (seen != seen_.end() && !seen->second.empty() && seen->second.front().at_ms <= now_ms_) {
      since_ms = std::max(since_ms, seen->second.front().at_ms);
      auto tail = seen->second;
      // The past does not show what was seen after it.
      std::erase_if(tail, [this](const auto& point) { return point.at_ms > now_ms_; });
      points = WithTail(std::move(points), bucket_ms_, tail);
    }
    series_.push_back({wanted_[i].title, wanted_[i].unit, std::move(points)});
  }
  note_.clear();
  if (wanted_.empty()) {
  } else if (shown_cluster_.recording() == nullptr) {
    note_ = since_ms == 0 ? tr("Not recorded.")
                          : tr("Not recorded: shown is what this page has seen since %1.")
                                .arg(FormatTime(since_ms, now_ms_));
  } else if (!status_.ok()) {
    note_ = tr("The recording cannot be read: %1.").arg(SafeText(base::Message(status_)));
    if (answer_)
      note_ += tr(" Shown is what it said at %1.").arg(FormatTime(answered_ms_, now_ms_));
  } else if (!answer_) {
    note_ = tr("Reading the recording…");
  } else if (all_missing) {
    note_ = tr("The recording has no such numbers.");
  }
  Q_EMIT Changed();
}

}  // namespace onepiece::gui
