// record, show.
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
#include "cluster/local/control.h"
#include "cluster/local/resources.h"
#include "cluster/session/session.h"
#include "cluster/history/record_loop.h"
#include "cluster/history/recording.h"

namespace onepiece::cli {
namespace {

namespace history = gui::history;

struct RecordOptions {
  std::string out, length;
};

struct ShowOptions {
  std::string file, at, copy, from, to;
  bool info = false;
};

absl::Status BadTime(const std::string& text, const char* allowed) {
  return base::MakeError(
      absl::StatusCode::kInvalidArgument, "USAGE",
      absl::StrCat("'", base::ToUtf8(text, 100), "' is no time: give ", allowed));
}

std::string TimeText(std::int64_t unix_ms) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

absl::StatusOr<std::vector<history::Rule>> LoadRules() {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string path, local::ResourcePath("alerts.yaml"));
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  auto rules = history::ParseRules(text);
  if (!rules.ok()) return base::Annotate(rules.status(), path);
  return rules;
}

absl::StatusOr<gui::Target> FindTarget(const Context& context) {
  gui::Target target;
  target.nodemanagers = context.nodemanagers;
  if (target.nodemanagers.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(const local::ClusterState state,
                              local::FindCluster(context.data_dir));
    target.nodemanagers = state.nodemanagers;
  }
  target.name = target.nodemanagers.front();
  return target;
}

/// What people are told while it records: a bar on a terminal, and lines when the connection goes
/// or comes back.
class RecordProgress {
 public:
  RecordProgress(const Context& context, std::optional<double> length_s)
      : context_(context), bar_(context), length_s_(length_s) {}
  void Show(double seconds, const history::RecordState& state, const gui::LinkStatus& link) {
    const bool heard = link.link == gui::Link::kLive || link.link == gui::Link::kLagging;
    if (heard != heard_ || (!heard && link.detail != detail_)) {
      bar_.Erase();
      context_.Say(absl::StrCat(gui::LinkName(link.link), link.detail.empty() ? "" : ": ",
                                base::ToUtf8(link.detail, 300)));
      heard_ = heard;
      detail_ = link.detail;
    }
    bar_.Show(length_s_ ? seconds / *length_s_ : 0,
              absl::StrFormat("%.0f s, %d ticks, %s, %s%s", seconds, state.ticks,
                              HumanBytes(state.bytes), gui::LinkName(link.link),
                              state.status.ok() ? "" : ", " + base::Message(state.status)));
  }
  void Erase() { bar_.Erase(); }

 private:
  const Context& context_;
  ProgressBar bar_;
  const std::optional<double> length_s_;
  bool heard_ = false;
  std::string detail_;
};

int Report(const Context& context, const std::string& file) {
  const auto recording = history::Recording::Open(file);
  if (!recording.ok()) return context.Fail(recording.status());
  const auto info = (*recording)->Info();
  if (!info.ok()) return context.Fail(info.status());
  context.Print(
      {{"file", file},
       {"cluster_id", info->cluster_id},
       {"from_unix_ms", info->interval.from_ms},
       {"to_unix_ms", info->interval.to_ms},
       {"ticks", info->ticks},
       {"bytes", info->bytes}},
      absl::StrFormat("%s: cluster %s from %s to %s, %d ticks, %s\n", file,
                      base::ToUtf8(info->cluster_id, 200), TimeText(info->interval.from_ms),
                      TimeText(info->interval.to_ms), info->ticks, HumanBytes(info->bytes)));
  return kOk;
}

int RunRecord(const Context& context, const RecordOptions& options) {
  absl::Duration length = absl::InfiniteDuration();
  const bool limited = !options.length.empty();
  if (limited && (!absl::ParseDuration(options.length, &length) || length <= absl::ZeroDuration()))
    return context.Fail(BadTime(options.length, "a length like 90s, 10m or 2h"));
  base::ShutdownSignals signals;  // Before any thread starts.
  const auto rules = LoadRules();
  if (!rules.ok()) return context.Fail(rules.status());
  const auto target = FindTarget(context);
  if (!target.ok()) return context.Fail(target.status());
  gui::SessionOptions session_options;
  session_options.user_agent = "onepiece-record";
  gui::Session session(*target, session_options);
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
  // What could be tried again was; what could not has ended the recording.
  if (!state.status.ok()) return context.Fail(state.status);
  if (state.ticks == 0) {
    const gui::LinkStatus link = session.status();
    return context.Fail(base::MakeError(
        absl::StatusCode::kUnavailable, "NOTHING_RECORDED",
        absl::StrCat("nothing was heard of ", target->name, " (", gui::LinkName(link.link),
                     link.detail.empty() ? "" : ": ", link.detail, ")")));
  }
  return Report(context, options.out);
}

// "now" is the recording's end: what people ask for is a moment of it.
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
  // A time of day: the last one that the recording has seen.
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
      info.live ? " (being recorded)" : "", TimeText(info.interval.from_ms),
      TimeText(info.interval.to_ms), info.ticks, HumanBytes(info.bytes));
  for (const history::Gap& gap : gaps) {
    absl::StrAppend(&text, "gap  ", TimeText(gap.interval.from_ms), " to ",
                    TimeText(gap.interval.to_ms), "  ", base::ToUtf8(gap.reason, 300), "\n");
  }
  return text;
}

std::map<std::string, int> CountJobs(const gui::Snapshot& snapshot) {
  std::map<std::string, int> counts;
  if (!snapshot.jobs.value) return counts;
  for (const gui::JobEntry& entry : snapshot.jobs.value->jobs) {
    const bool unknown = entry.certainty == gui::Certainty::kUnknownAtEnd;
    ++counts[unknown ? "UNKNOWN_AT_END" : v1::Job::State_Name(entry.job->state())];
  }
  return counts;
}

// Null where nothing is known: never 0.
Json Known(bool known, double value) { return known ? Json(value) : Json(nullptr); }

Json SnapshotDocument(const gui::Snapshot& snapshot) {
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
    for (const gui::RingEntry& ring : *snapshot.rings.value) {
      document["rings"].push_back({{"node_id", ring.node_id},
                                   {"used_slots", ring.health.used_slots()},
                                   {"slots", ring.health.slots()},
                                   {"oldest_age_ms", ring.health.oldest_age_ms()},
                                   {"error", ring.error}});
    }
  }
  for (const auto& [state, count] : CountJobs(snapshot)) document["jobs"][state] = count;
  if (snapshot.alerts.value) {
    for (const gui::Alert& alert : *snapshot.alerts.value) {
      static constexpr const char* kStates[] = {"pending", "firing", "resolved", "no_data",
                                                "error"};
      document["alerts"].push_back({{"id", alert.id},
                                    {"state", kStates[static_cast<int>(alert.state)]},
                                    {"text", alert.text}});
    }
  }
  return document;
}

std::string SnapshotText(const gui::Snapshot& snapshot) {
  std::string text = "At " + TimeText(snapshot.at_ms) + "\n";
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
    for (const gui::RingEntry& ring : *snapshot.rings.value) {
      absl::StrAppendFormat(
          &text, "  ring  %-24s %d of %d, the oldest for %d ms%s\n", word(ring.node_id),
          ring.health.used_slots(), ring.health.slots(), ring.health.oldest_age_ms(),
          ring.error.empty() ? "" : "  (does not answer: " + word(ring.error) + ")");
    }
  }
  for (const auto& [state, count] : CountJobs(snapshot))
    absl::StrAppendFormat(&text, "  jobs  %-24s %d\n", state, count);
  if (snapshot.alerts.value) {
    for (const gui::Alert& alert : *snapshot.alerts.value) {
      if (alert.state == gui::Alert::State::kResolved) continue;
      absl::StrAppend(&text, "  alert ", base::ToUtf8(alert.text, 200), "\n");
    }
  }
  return text;
}

int RunExport(const Context& context, const ShowOptions& options, history::Recording& recording,
              const history::RecordingInfo& info) {
  Interrupt interrupt;
  const auto from_ms =
      options.from.empty() ? info.interval.from_ms : ParseMoment(options.from, info.interval.to_ms);
  if (!from_ms.ok()) return context.Fail(from_ms.status());
  const auto to_ms = ParseMoment(options.to, info.interval.to_ms);
  if (!to_ms.ok()) return context.Fail(to_ms.status());
  ProgressBar bar(context);
  const absl::Status copied = recording.Export({*from_ms, *to_ms}, options.copy, [&](double share) {
    bar.Show(share, options.copy);
    return !interrupt.token().stop_requested();
  });
  bar.Erase();
  if (absl::IsOutOfRange(copied)) return context.Fail(copied, kNotFound);
  if (absl::IsCancelled(copied)) return context.Fail(copied, kInterrupted);
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
    return kOk;
  }
  if (!options.copy.empty()) return RunExport(context, options, **recording, *info);
  const auto at_ms = ParseMoment(options.at, info->interval.to_ms);
  if (!at_ms.ok()) return context.Fail(at_ms.status());
  const auto snapshot = (*recording)->At(*at_ms);
  // The question was well put; the recording has no answer.
  if (!snapshot.ok()) {
    return absl::IsOutOfRange(snapshot.status()) ? context.Fail(snapshot.status(), kNotFound)
                                                 : context.Fail(snapshot.status());
  }
  context.Print(SnapshotDocument(**snapshot), SnapshotText(**snapshot));
  return kOk;
}

}  // namespace

void AddRecordVerbs(CLI::App& app, Context& context) {
  const auto record_options = std::make_shared<RecordOptions>();
  CLI::App* record = app.add_subcommand("record", "Write what happens in a cluster into one file");
  record
      ->add_option("-o,--out", record_options->out,
                   "The file; one of the same cluster is gone on with")
      ->required();
  record->add_option("--for", record_options->length, "End after so long (90s, 10m, 2h)");
  record->callback([&context, record_options] {
    context.action = [&context, record_options] { return RunRecord(context, *record_options); };
  });
  const auto show_options = std::make_shared<ShowOptions>();
  CLI::App* show = app.add_subcommand("show", "A cluster at a moment of a recording");
  show->add_option("--file", show_options->file, "The recording")->required();
  CLI::Option* at =
      show->add_option("--at", show_options->at,
                       "11:58, 11:58:02, \"2026-05-01 11:58:02\", -5m before the end, or "
                       "Unix ms; without it the end");
  CLI::Option* info =
      show->add_flag("--info", show_options->info, "The file itself: its time, gaps and size")
          ->excludes(at);
  CLI::Option* copy =
      show->add_option("--export", show_options->copy, "Copy a part into this new file")
          ->excludes(at)
          ->excludes(info);
  show->add_option("--from", show_options->from,
                   "Where the part begins, as --at; else the beginning")
      ->needs(copy);
  show->add_option("--to", show_options->to, "Where it ends, as --at; else the end")->needs(copy);
  show->callback([&context, show_options] {
    context.action = [&context, show_options] { return RunShow(context, *show_options); };
  });
}

}  // namespace onepiece::cli
