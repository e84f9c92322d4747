// The verbs record and show.
#include <algorithm>
#include <fstream>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/cli/verbs.h"
#include "cluster/history/record_loop.h"
#include "cluster/history/recording.h"
#include "cluster/local/control.h"
#include "cluster/local/resources.h"
#include "cluster/session/session.h"
#include "cluster/terminal/exit_code.h"
#include "cluster/terminal/interrupt.h"
#include "cluster/terminal/progress_bar.h"

namespace onepiece::cli {
namespace {

struct RecordOptions {
  std::string out, length;
};

struct ShowOptions {
  std::string file, at, copy, from, to;
  bool info = false;
};

absl::Status BadTime(const std::string& text, const char* allowed) {
  return terminal::UsageError(
      absl::StrCat("'", base::ToUtf8(text, 100), "' is no time: give ", allowed));
}

absl::StatusOr<std::vector<history::Rule>> LoadRules() {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string path, local::ResourcePath("alerts.yaml"));
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  auto rules = history::ParseRules(text);
  if (!rules.ok()) return base::Annotate(rules.status(), path);
  return rules;
}

absl::StatusOr<session::ClusterAddress> FindTarget(const Context& context) {
  ONEPIECE_ASSIGN_OR_RETURN(const local::ClusterState state, context.FindCluster());
  session::ClusterAddress target;
  target.nodemanagers = state.nodemanagers;
  target.name = target.nodemanagers.front();
  return target;
}

/// Tells people about a recording while it runs: a bar on a terminal, and lines when the connection
/// is lost or comes back.
class RecordProgress {
 public:
  RecordProgress(const Context& context, std::optional<double> length_s)
      : context_(context), bar_(context), length_s_(length_s) {}
  void Show(double seconds, const history::RecordState& state, const session::LinkStatus& link) {
    const bool heard = link.link == session::Link::kLive || link.link == session::Link::kLagging;
    if (heard != heard_ || (!heard && link.detail != detail_)) {
      bar_.Erase();
      context_.Say(absl::StrCat(session::LinkName(link.link), link.detail.empty() ? "" : ": ",
                                base::ToUtf8(link.detail, 300)));
      heard_ = heard;
      detail_ = link.detail;
    }
    bar_.Show(length_s_ ? seconds / *length_s_ : 0,
              absl::StrFormat("%.0f s, %d ticks, %s, %s%s", seconds, state.ticks,
                              terminal::HumanBytes(state.bytes), session::LinkName(link.link),
                              state.status.ok() ? "" : ", " + base::Message(state.status)));
  }
  void Erase() { bar_.Erase(); }

 private:
  const Context& context_;
  terminal::ProgressBar bar_;
  const std::optional<double> length_s_;
  bool heard_ = false;
  std::string detail_;
};

int Report(const Context& context, const std::string& file) {
  const auto recording = history::Recording::Open(file);
  if (!recording.ok()) return context.Fail(recording.status());
  const auto info = (*recording)->Info();
  if (!info.ok()) return context.Fail(info.status());
  context.Print({{"file", file},
                 {"cluster_id", info->cluster_id},
                 {"from_unix_ms", info->interval.from_ms},
                 {"to_unix_ms", info->interval.to_ms},
                 {"ticks", info->ticks},
                 {"bytes", info->bytes}},
                absl::StrFormat("%s: cluster %s from %s to %s, %d ticks, %s\n", file,
                                base::ToUtf8(info->cluster_id, 200),
                                history::TimeText(info->interval.from_ms),
                                history::TimeText(info->interval.to_ms), info->ticks,
                                terminal::HumanBytes(info->bytes)));
  return terminal::kOk;
}

int RunRecord(const Context& context, const RecordOptions& options) {
  absl::Duration length = absl::InfiniteDuration();
  const bool limited = !options.length.empty();
  if (limited && (!absl::ParseDuration(options.length, &length) || length <= absl::ZeroDuration()))
    return context.Fail(BadTime(options.length, "a length like 90s, 10m or 2h"));
  base::ShutdownSignals
      signals;  // Must come before any thread starts, because it blocks the signals.
  const auto rules = LoadRules();
  if (!rules.ok()) return context.Fail(rules.status());
  const auto target = FindTarget(context);
  if (!target.ok()) return context.Fail(target.status());
  session::SessionOptions session_options;
  session_options.user_agent = "onepiece-record";
  session::Session session(*target, session_options);
  history::RecordLoop loop(history::RecordLoop::Of(session), *rules);
  if (const absl::Status started = loop.Start(options.out); !started.ok())
    return context.Fail(started);
  context.Say(absl::StrCat("Recording ", target->name, " into ", options.out,
                           limited ? absl::StrCat(" for ", absl::FormatDuration(length)) : "",
                           ". Ctrl-C ends it."));
  base::Clock& clock = base::SystemClock();
  const base::MonotonicTime start = clock.Now();
  RecordProgress progress(
      context, limited ? std::optional<double>(absl::ToDoubleSeconds(length)) : std::nullopt);
  for (;;) {
    const double seconds = std::chrono::duration<double>(clock.Now() - start).count();
    const absl::Duration left = length - absl::Seconds(seconds);
    if (left <= absl::ZeroDuration()) break;
    progress.Show(seconds, loop.state(), session.status());
    if (signals.WaitFor(absl::ToChronoNanoseconds(std::min(left, absl::Seconds(1))))) break;
    if (!loop.state().recording) break;
  }
  progress.Erase();
  loop.Stop();
  const history::RecordState state = loop.state();
  // The loop has retried after errors that can go away. Any other error has ended the recording.
  if (!state.status.ok()) return context.Fail(state.status);
  if (state.ticks == 0) {
    const session::LinkStatus link = session.status();
    return context.Fail(base::MakeError(
        absl::StatusCode::kUnavailable, "NOTHING_RECORDED",
        absl::StrCat("nothing was heard of ", target->name, " (", session::LinkName(link.link),
                     link.detail.empty() ? "" : ": ", link.detail, ")")));
  }
  return Report(context, options.out);
}

// Parses a moment of the recording. An empty text means the recording's end, and "-5m" counts back
// from it.
absl::StatusOr<std::int64_t> ParseMoment(const std::string& text, std::int64_t end_ms) {
  if (text.empty()) return end_ms;
  absl::Duration before;
  if (text.front() == '-' && absl::ParseDuration(text, &before))
    return end_ms + absl::ToInt64Milliseconds(before);
  if (text.find_first_not_of("0123456789") == std::string::npos && text.size() == 13)
    return std::stoll(text);
  const absl::TimeZone zone = absl::LocalTimeZone();
  absl::Time time;
  std::string ignored;
  for (const char* format :
       {"%Y-%m-%d %H:%M:%E*S", "%Y-%m-%dT%H:%M:%E*S%Ez", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%E*S"}) {
    if (absl::ParseTime(format, text, zone, &time, &ignored)) return absl::ToUnixMillis(time);
  }
  // A time of day means its last occurrence before the recording's end.
  const std::string day = absl::FormatTime("%Y-%m-%d ", absl::FromUnixMillis(end_ms), zone);
  for (const char* format : {"%Y-%m-%d %H:%M:%E*S", "%Y-%m-%d %H:%M"}) {
    if (!absl::ParseTime(format, day + text, zone, &time, &ignored)) continue;
    if (absl::ToUnixMillis(time) > end_ms) time -= absl::Hours(24);
    return absl::ToUnixMillis(time);
  }
  return BadTime(text, "11:58, 11:58:02, \"2026-05-01 11:58:02\", -5m (before the end) or Unix ms");
}

Json InfoDocument(const history::RecordingInfo& info, const std::vector<history::Gap>& gaps) {
  Json document = {{"file", info.path},
                   {"cluster_id", info.cluster_id},
                   {"from_unix_ms", info.interval.from_ms},
                   {"to_unix_ms", info.interval.to_ms},
                   {"ticks", info.ticks},
                   {"bytes", info.bytes},
                   {"format", info.format},
                   {"live", info.live},
                   {"gaps", Json::array()}};
  for (const history::Gap& gap : gaps) {
    document["gaps"].push_back({{"from_unix_ms", gap.interval.from_ms},
                                {"to_unix_ms", gap.interval.to_ms},
                                {"reason", gap.reason}});
  }
  return document;
}

std::string InfoText(const history::RecordingInfo& info, const std::vector<history::Gap>& gaps) {
  std::string text = absl::StrFormat(
      "cluster %s%s\nfrom %s to %s: %d ticks, %s\n", base::ToUtf8(info.cluster_id, 200),
      info.live ? " (being recorded)" : "", history::TimeText(info.interval.from_ms),
      history::TimeText(info.interval.to_ms), info.ticks, terminal::HumanBytes(info.bytes));
  for (const history::Gap& gap : gaps) {
    absl::StrAppend(&text, "gap  ", history::TimeText(gap.interval.from_ms), " to ",
                    history::TimeText(gap.interval.to_ms), "  ", base::ToUtf8(gap.reason, 300),
                    "\n");
  }
  return text;
}

std::map<std::string, int> CountJobs(const session::Snapshot& snapshot) {
  std::map<std::string, int> counts;
  if (!snapshot.jobs.value) return counts;
  for (const session::JobEntry& entry : snapshot.jobs.value->jobs) {
    const bool unknown = entry.certainty == session::Certainty::kUnknownAtEnd;
    ++counts[unknown ? "UNKNOWN_AT_END" : v1::Job::State_Name(entry.job->state())];
  }
  return counts;
}

// An unknown number is null, and never 0.
Json Known(bool known, double value) { return known ? Json(value) : Json(nullptr); }

Json SnapshotDocument(const session::Snapshot& snapshot) {
  Json document = {{"at_unix_ms", snapshot.at_ms}, {"nodes", Json::array()},
                   {"pools", Json::array()},       {"rings", Json::array()},
                   {"jobs", Json::object()},       {"alerts", Json::array()}};
  if (snapshot.cluster.value) {
    document["cluster_id"] = snapshot.cluster.value->cluster_id();
    for (const v1::Node& node : snapshot.cluster.value->nodes()) {
      document["nodes"].push_back(
          {{"node_id", node.node_id()},
           {"role", v1::Role_Name(node.role())},
           {"state", v1::Node::State_Name(node.state())},
           {"activity", v1::Activity_Name(node.activity())},
           {"pool", node.placement().pool()},
           {"utilization", Known(node.has_load(), node.load().utilization())},
           {"queued_jobs", node.load().queued_jobs()},
           {"running_jobs", node.load().running_jobs()}});
    }
  }
  if (snapshot.elasticity.value) {
    for (const v1::PoolStatus& pool : snapshot.elasticity.value->pools()) {
      document["pools"].push_back(
          {{"workflow_set", pool.workflow_set()},
           {"pool", pool.pool()},
           {"instances", pool.instances()},
           {"utilization", Known(pool.has_utilization(), pool.utilization())}});
    }
  }
  if (snapshot.rings.value) {
    for (const session::RingEntry& ring : *snapshot.rings.value) {
      document["rings"].push_back({{"node_id", ring.node_id},
                                   {"used_slots", ring.health.used_slots()},
                                   {"slots", ring.health.slots()},
                                   {"oldest_age_ms", ring.health.oldest_age_ms()},
                                   {"error", ring.error}});
    }
  }
  for (const auto& [state, count] : CountJobs(snapshot)) document["jobs"][state] = count;
  if (snapshot.alerts.value) {
    for (const session::Alert& alert : *snapshot.alerts.value) {
      static constexpr const char* kStates[] = {"pending", "firing", "resolved", "no_data",
                                                "error"};
      document["alerts"].push_back({{"id", alert.id},
                                    {"state", kStates[static_cast<int>(alert.state)]},
                                    {"text", alert.text}});
    }
  }
  return document;
}

std::string SnapshotText(const session::Snapshot& snapshot) {
  std::string text = "At " + history::TimeText(snapshot.at_ms) + "\n";
  const auto percent = [](bool known, double value) {
    return known ? absl::StrFormat("%3.0f %%", value * 100) : std::string("  ?  ");
  };
  const auto word = [](const std::string& name) { return base::ToUtf8(name, 60); };
  if (snapshot.cluster.value) {
    for (const v1::Node& node : snapshot.cluster.value->nodes()) {
      const bool acts = node.activity() != v1::ACTIVITY_UNSPECIFIED;
      absl::StrAppendFormat(
          &text, "  node  %-24s %-13s %-8s %-12s %s  %d running, %d queued  %s\n",
          word(node.node_id()), v1::Role_Name(node.role()), v1::Node::State_Name(node.state()),
          acts ? v1::Activity_Name(node.activity()) : "-",
          percent(node.has_load(), node.load().utilization()), node.load().running_jobs(),
          node.load().queued_jobs(), word(node.placement().pool()));
    }
  }
  if (snapshot.elasticity.value) {
    for (const v1::PoolStatus& pool : snapshot.elasticity.value->pools()) {
      absl::StrAppendFormat(&text, "  pool  %-40s %d instances, %s\n",
                            word(pool.workflow_set() + " " + pool.pool()), pool.instances(),
                            percent(pool.has_utilization(), pool.utilization()));
    }
  }
  if (snapshot.rings.value) {
    for (const session::RingEntry& ring : *snapshot.rings.value) {
      absl::StrAppendFormat(
          &text, "  ring  %-24s %d of %d, the oldest for %d ms%s\n", word(ring.node_id),
          ring.health.used_slots(), ring.health.slots(), ring.health.oldest_age_ms(),
          ring.error.empty() ? "" : "  (does not answer: " + word(ring.error) + ")");
    }
  }
  for (const auto& [state, count] : CountJobs(snapshot))
    absl::StrAppendFormat(&text, "  jobs  %-24s %d\n", state, count);
  if (snapshot.alerts.value) {
    for (const session::Alert& alert : *snapshot.alerts.value) {
      if (alert.state == session::Alert::State::kResolved) continue;
      absl::StrAppend(&text, "  alert ", base::ToUtf8(alert.text, 200), "\n");
    }
  }
  return text;
}

int RunExport(const Context& context, const ShowOptions& options, history::Recording& recording,
              const history::RecordingInfo& info) {
  terminal::Interrupt interrupt;
  const auto from_ms =
      options.from.empty() ? info.interval.from_ms : ParseMoment(options.from, info.interval.to_ms);
  if (!from_ms.ok()) return context.Fail(from_ms.status());
  const auto to_ms = ParseMoment(options.to, info.interval.to_ms);
  if (!to_ms.ok()) return context.Fail(to_ms.status());
  terminal::ProgressBar bar(context);
  const absl::Status copied = recording.Export({*from_ms, *to_ms}, options.copy, [&](double share) {
    bar.Show(share, options.copy);
    return !interrupt.token().stop_requested();
  });
  bar.Erase();
  if (absl::IsOutOfRange(copied)) return context.Fail(copied, terminal::kNotFound);
  if (absl::IsCancelled(copied)) return context.Fail(copied, terminal::kInterrupted);
  return copied.ok() ? Report(context, options.copy) : context.Fail(copied);
}

int RunShow(const Context& context, const ShowOptions& options) {
  const auto recording = history::Recording::Open(options.file);
  if (!recording.ok()) return context.Fail(recording.status());
  const auto info = (*recording)->Info();
  if (!info.ok()) return context.Fail(info.status());
  if (options.info) {
    const auto gaps = (*recording)->Gaps(info->interval);
    if (!gaps.ok()) return context.Fail(gaps.status());
    context.Print(InfoDocument(*info, *gaps), InfoText(*info, *gaps));
    return terminal::kOk;
  }
  if (!options.copy.empty()) return RunExport(context, options, **recording, *info);
  const auto at_ms = ParseMoment(options.at, info->interval.to_ms);
  if (!at_ms.ok()) return context.Fail(at_ms.status());
  const auto snapshot = (*recording)->At(*at_ms);
  // The command line was right, but the recording has nothing at that time.
  if (!snapshot.ok()) {
    return absl::IsOutOfRange(snapshot.status())
               ? context.Fail(snapshot.status(), terminal::kNotFound)
               : context.Fail(snapshot.status());
  }
  context.Print(SnapshotDocument(**snapshot), SnapshotText(**snapshot));
  return terminal::kOk;
}

}  // namespace

void DefineRecord(CLI::App& verb, Context& context) {
  const auto options = std::make_shared<RecordOptions>();
  verb.add_option("-o,--out", options->out, "The file; one of the same cluster is gone on with")
      ->required();
  verb.add_option("--for", options->length, "End after so long (90s, 10m, 2h)");
  verb.callback([&context, options] {
    context.action = [&context, options] { return RunRecord(context, *options); };
  });
}

void DefineShow(CLI::App& verb, Context& context) {
  const auto options = std::make_shared<ShowOptions>();
  verb.add_option("--file", options->file, "The recording")->required();
  CLI::Option* at =
      verb.add_option("--at", options->at,
                      "11:58, 11:58:02, \"2026-05-01 11:58:02\", -5m before the end, or "
                      "Unix ms; without it the end");
  CLI::Option* info =
      verb.add_flag("--info", options->info, "The file itself: its time, gaps and size")
          ->excludes(at);
  CLI::Option* copy = verb.add_option("--export", options->copy, "Copy a part into this new file")
                          ->excludes(at)
                          ->excludes(info);
  verb.add_option("--from", options->from, "Where the part begins, as --at; else the beginning")
      ->needs(copy);
  verb.add_option("--to", options->to, "Where it ends, as --at; else the end")->needs(copy);
  verb.callback([&context, options] {
    context.action = [&context, options] { return RunShow(context, *options); };
  });
}

}  // namespace onepiece::cli
