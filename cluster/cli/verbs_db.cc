// The verbs db stats, list, get and purge, which ask the databases themselves.

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/cli/job_list.h"
#include "cluster/cli/job_output.h"
#include "cluster/cli/plan_verbs.h"
#include "cluster/client/databases.h"
#include "cluster/client/receive_file.h"
#include "cluster/terminal/exit_code.h"
#include "google/protobuf/util/time_util.h"

namespace onepiece::cli {
namespace {

using google::protobuf::util::TimeUtil;

struct DatabaseArguments {
  std::string database;  ///< The node id. Empty means all databases.
  JobFilter filter;
  std::string app, ended_before, artifact, output;
  std::vector<std::string> uids;
  std::int64_t offset_bytes = 0, limit_bytes = 0;
  int limit = 20;
  bool all = false, dry_run = false, yes = false;
};

// ---- which databases ----

absl::StatusOr<std::vector<client::DatabaseAnswer>> Wanted(client::Client& client,
                                                           const std::string& node_id) {
  ONEPIECE_ASSIGN_OR_RETURN(std::vector<client::DatabaseAnswer> answers,
                            client::AskDatabases(client));
  if (node_id.empty() && answers.empty())
    return base::MakeError(absl::StatusCode::kUnavailable, "NO_DATABASE", "no database is alive");
  if (node_id.empty()) return answers;
  std::erase_if(answers, [&](const auto& answer) { return answer.node_id != node_id; });
  if (!answers.empty()) return answers;
  return base::MakeError(
      absl::StatusCode::kNotFound, "NODE_UNKNOWN",
      absl::StrCat("there is no database '", node_id, "' that is alive (see `onepiece status`)"));
}

Json ErrorDocument(const client::DatabaseAnswer& answer, const absl::Status& status) {
  return {{"node_id", answer.node_id},
          {"address", answer.address},
          {"error", base::Message(status)},
          {"reason", base::GetReason(status).reason}};
}

// ---- stats ----

Json PeerDocument(const v1::DatabasePeer& peer) {
  return {
      {"node_id", peer.node_id()},
      {"alive", peer.alive()},
      {"waiting_records", peer.waiting_records()},
      {"waiting_results", peer.waiting_results()},
      {"compared_time",
       peer.has_compared_time() ? Json(TimeUtil::ToString(peer.compared_time())) : Json(nullptr)}};
}

Json StatsDocument(const client::DatabaseAnswer& answer, const v1::Database& database) {
  Json document = {{"node_id", answer.node_id},
                   {"address", answer.address},
                   {"records", database.records()},
                   {"results", database.results()},
                   {"result_bytes", database.result_bytes()},
                   {"budget_bytes", database.budget_bytes()},
                   {"memory_bytes", database.memory_bytes()},
                   {"spilled_results", database.spilled_results()},
                   {"spilled_bytes", database.spilled_bytes()},
                   {"spill_budget_bytes", database.spill_budget_bytes()},
                   {"fetched", database.fetched()},
                   {"expired", database.expired()},
                   {"deleted", database.deleted()},
                   {"evicted", database.evicted()},
                   {"refused", database.refused()},
                   {"lost_on_restart", database.lost_on_restart()},
                   {"copies", database.copies()},
                   {"peers", Json::array()}};
  for (const auto& peer : database.peers()) document["peers"].push_back(PeerDocument(peer));
  return document;
}

std::string StatsText(const v1::Database& database) {
  std::string text = absl::StrFormat(
      "%s\n"
      "  results   %d in memory, %s of %s; registered memory %s\n"
      "  records   %d; tombstones: %d fetched, %d expired, %d deleted\n"
      "  pressure  evicted %d, refused %d, lost at restarts %d\n",
      database.node_id(), database.results(), terminal::HumanBytes(database.result_bytes()),
      terminal::HumanBytes(database.budget_bytes()), terminal::HumanBytes(database.memory_bytes()),
      database.records(), database.fetched(), database.expired(), database.deleted(),
      database.evicted(), database.refused(), database.lost_on_restart());
  if (database.spill_budget_bytes() > 0) {
    text += absl::StrFormat("  files     %d results, %s of %s\n", database.spilled_results(),
                            terminal::HumanBytes(database.spilled_bytes()),
                            terminal::HumanBytes(database.spill_budget_bytes()));
  }
  for (const v1::DatabasePeer& peer : database.peers()) {
    text += absl::StrFormat(
        "  peer      %s  %s, %d records and %d results wait, %s\n", peer.node_id(),
        peer.alive() ? "alive" : "away", peer.waiting_records(), peer.waiting_results(),
        peer.has_compared_time()
            ? "same at " + TimeUtil::ToString(peer.compared_time()).substr(0, 19)
            : "not compared yet");
  }
  return text;
}

int RunStats(const Context& context, client::Client& client, const DatabaseArguments& arguments) {
  const auto answers = Wanted(client, arguments.database);
  if (!answers.ok()) return context.Fail(answers.status());
  Json document = {{"databases", Json::array()}};
  std::string text;
  absl::Status failed;
  for (const client::DatabaseAnswer& answer : *answers) {
    if (answer.database.ok()) {
      document["databases"].push_back(StatsDocument(answer, *answer.database));
      text += StatsText(*answer.database);
      continue;
    }
    failed = base::Annotate(answer.database.status(), answer.node_id);
    document["databases"].push_back(ErrorDocument(answer, answer.database.status()));
    text +=
        answer.node_id + "\n  does not answer: " + base::Message(answer.database.status()) + "\n";
  }
  context.Print(document, text);
  if (failed.ok()) return terminal::kOk;
  context.Say("onepiece: " + base::Message(failed));
  return terminal::kUnavailable;
}

// ---- list ----

int RunList(const Context& context, client::Client& client, const DatabaseArguments& arguments) {
  const auto request = arguments.filter.Request();
  if (!request.ok()) return context.Fail(request.status());
  std::string address;
  if (!arguments.database.empty()) {
    const auto answers = Wanted(client, arguments.database);
    if (!answers.ok()) return context.Fail(answers.status());
    address = answers->front().address;
  }
  Json document = {{"jobs", Json::array()}};
  std::string text;
  const absl::Status listed = ForEachJob(
      *request, arguments.limit,
      [&](const v1::ListJobsRequest& page) {
        return address.empty() ? client.List(page) : client::ListJobsAt(address, page);
      },
      [&](const v1::Job& job) {
        document["jobs"].push_back(JobDocument(job));
        std::int64_t bytes = 0;
        for (const auto& artifact : job.result().artifacts()) bytes += artifact.size_bytes();
        text += absl::StrFormat("%s  %-20s %10s  %s  %s\n", job.uid(),
                                TimeUtil::ToString(job.create_time()).substr(0, 19),
                                bytes > 0 ? terminal::HumanBytes(bytes) : "-", job.app_id(),
                                JobProgressText(job));
      });
  if (!listed.ok()) return context.Fail(listed);
  context.Print(document, text);
  return terminal::kOk;
}

// ---- get ----

// Keeps the most useful error for when no database has the job. The reason why it is gone is better
// than "unknown".
void Prefer(const absl::Status& status, absl::Status& error) {
  if (error.ok() || absl::IsNotFound(error) || absl::IsUnavailable(error)) error = status;
}

int ShowRecord(const Context& context, const std::vector<client::DatabaseAnswer>& answers,
               const std::string& uid) {
  std::optional<v1::Job> job;
  Json places = Json::array();
  std::string text;
  absl::Status error;
  for (const client::DatabaseAnswer& answer : answers) {
    const auto record = client::GetJobAt(answer.address, uid);
    if (!record.ok()) {
      Prefer(record.status(), error);
      places.push_back(ErrorDocument(answer, record.status()));
      text += absl::StrCat("  ", answer.node_id, "  ", base::Message(record.status()), "\n");
      continue;
    }
    if (!job.has_value() || record->has_bytes()) job = record->job();
    places.push_back({{"node_id", answer.node_id},
                      {"address", answer.address},
                      {"state", StateName(record->job().state())},
                      {"has_bytes", record->has_bytes()}});
    text += absl::StrFormat("  %s  %s%s\n", answer.node_id, JobProgressText(record->job()),
                            record->has_bytes() ? ", has the result" : "");
  }
  if (!job.has_value()) return context.Fail(error);
  Json document = JobDocument(*job);
  document["databases"] = places;
  context.Print(document, JobText(*job) + text);
  return terminal::kOk;
}

int RunGet(const Context& context, client::Client& client, const DatabaseArguments& arguments) {
  const auto uid = ParseUid(arguments.uids.front());
  if (!uid.ok()) return context.Fail(uid.status());
  const auto answers = Wanted(client, arguments.database);
  if (!answers.ok()) return context.Fail(answers.status());
  const bool part = arguments.offset_bytes > 0 || arguments.limit_bytes > 0;
  if (arguments.output.empty()) {
    if (part || !arguments.artifact.empty())
      return context.Fail(terminal::UsageError("--artifact, --offset and --bytes need -o FILE"));
    return ShowRecord(context, *answers, *uid);
  }
  v1::FetchResultRequest request;
  request.set_name(client::JobName(*uid));
  request.set_artifact(arguments.artifact);
  request.set_offset_bytes(arguments.offset_bytes);
  request.set_limit_bytes(arguments.limit_bytes);
  absl::Status error;
  for (const client::DatabaseAnswer& answer : *answers) {
    const auto fetched =
        client::ReceiveIntoFile(arguments.output, [&](const client::ChunkSink& sink) {
          return client::FetchAt(answer.address, request, sink);
        });
    if (!fetched.ok()) {
      Prefer(fetched.status(), error);
      continue;
    }
    const std::int64_t rest = fetched->size_bytes() - arguments.offset_bytes;
    const std::int64_t bytes =
        arguments.limit_bytes > 0 ? std::min(arguments.limit_bytes, rest) : rest;
    const bool checked = bytes == fetched->size_bytes();
    context.Print({{"uid", *uid},
                   {"node_id", answer.node_id},
                   {"artifact", fetched->artifact()},
                   {"media_type", fetched->media_type()},
                   {"size_bytes", fetched->size_bytes()},
                   {"sha256", fetched->sha256()},
                   {"offset", arguments.offset_bytes},
                   {"bytes", bytes},
                   {"checked", checked},
                   {"file", arguments.output}},
                  arguments.output);
    return terminal::kOk;
  }
  return context.Fail(error);
}

// ---- purge ----

absl::StatusOr<v1::PurgeResultsRequest> PurgeRequest(const DatabaseArguments& arguments) {
  v1::PurgeResultsRequest request;
  for (const std::string& text : arguments.uids) {
    ONEPIECE_ASSIGN_OR_RETURN(std::string uid, ParseUid(text));
    request.add_uids(std::move(uid));
  }
  request.set_app_id(arguments.app);
  if (!arguments.ended_before.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(*request.mutable_ended_before(),
                              ParseTime("--ended-before", arguments.ended_before));
  }
  request.set_all(arguments.all);
  if (arguments.uids.empty() && arguments.app.empty() && arguments.ended_before.empty() &&
      !arguments.all) {
    return terminal::UsageError("say which results: UIDs, --app, --ended-before, or --all");
  }
  return request;
}

struct Purged {
  Json document = {{"databases", Json::array()}};
  std::string text;
  std::int64_t results = 0, bytes = 0;
  absl::Status failed;
};

Purged PurgeEach(const std::vector<client::DatabaseAnswer>& answers,
                 const v1::PurgeResultsRequest& request) {
  Purged purged;
  for (const client::DatabaseAnswer& answer : answers) {
    const auto response = client::PurgeResultsAt(answer.address, request);
    if (!response.ok()) {
      purged.failed = base::Annotate(response.status(), answer.node_id);
      purged.document["databases"].push_back(ErrorDocument(answer, response.status()));
      continue;
    }
    purged.results += response->results();
    purged.bytes += response->bytes();
    purged.document["databases"].push_back({{"node_id", answer.node_id},
                                            {"results", response->results()},
                                            {"bytes", response->bytes()}});
    purged.text += absl::StrFormat("%s  %d results, %s\n", answer.node_id, response->results(),
                                   terminal::HumanBytes(response->bytes()));
  }
  purged.document["results"] = purged.results;
  purged.document["bytes"] = purged.bytes;
  purged.document["dry_run"] = request.dry_run();
  return purged;
}

int RunPurge(const Context& context, client::Client& client, const DatabaseArguments& arguments) {
  auto request = PurgeRequest(arguments);
  if (!request.ok()) return context.Fail(request.status());
  if (!arguments.dry_run && !arguments.yes && (context.json || isatty(STDIN_FILENO) != 1)) {
    return context.Fail(terminal::UsageError(
        "results that are purged are gone: look with --dry-run, and say --yes where nobody can be "
        "asked"));
  }
  const auto answers = Wanted(client, arguments.database);
  if (!answers.ok()) return context.Fail(answers.status());
  if (!arguments.dry_run && !arguments.yes) {
    request->set_dry_run(true);
    const Purged counted = PurgeEach(*answers, *request);
    if (!counted.failed.ok()) return context.Fail(counted.failed);
    context.Say("Purges (every copy counts):\n" + counted.text);
    if (!AskOnTerminal()) {
      return context.Fail(
          base::MakeError(absl::StatusCode::kAborted, "NOT_CONFIRMED", "nothing has been changed"));
    }
  }
  request->set_dry_run(arguments.dry_run);
  const Purged purged = PurgeEach(*answers, *request);
  if (!purged.failed.ok() && purged.results == 0) return context.Fail(purged.failed);
  if (purged.results == 0 && !arguments.uids.empty()) {
    return context.Fail(base::MakeError(absl::StatusCode::kNotFound, "NOTHING_TO_PURGE",
                                        "no database holds such a result"));
  }
  context.Print(purged.document, purged.text);
  if (purged.failed.ok()) return terminal::kOk;
  context.Say("onepiece: " + base::Message(purged.failed));
  return terminal::ExitCodeOf(purged.failed);
}

using DatabaseVerb = std::function<int(const Context&, client::Client&, const DatabaseArguments&)>;

CLI::App* AddVerb(CLI::App& db, Context& context, const std::string& name, const std::string& help,
                  const std::shared_ptr<DatabaseArguments>& arguments, DatabaseVerb run) {
  CLI::App* verb =
      AddManagerVerb(db, context, name, help, [&context, arguments, run](client::Client& client) {
        return run(context, client, *arguments);
      });
  verb->add_option("--database", arguments->database, "Only this one")->type_name("NODE");
  return verb;
}

}  // namespace

void DefineDatabase(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<DatabaseArguments>();
  verb.require_subcommand(1);
  AddVerb(verb, context, "stats", "What each database holds", arguments, RunStats);

  CLI::App* list = AddVerb(verb, context, "list", "List jobs, newest first", arguments, RunList);
  arguments->filter.AddTo(*list);
  list->add_option("--limit", arguments->limit, "At most so many")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();

  CLI::App* get = AddVerb(verb, context, "get",
                          "Show a job as each database has it, or fetch its result from the first "
                          "that has it; it stays there",
                          arguments, RunGet);
  get->add_option("uid", arguments->uids, "The job")->required()->type_name("UID")->expected(1);
  get->add_option("--artifact", arguments->artifact, "This one instead of the main one");
  get->add_option("-o,--output", arguments->output, "Fetch it into this file");
  get->add_option("--offset", arguments->offset_bytes, "From this byte on")
      ->check(CLI::NonNegativeNumber);
  get->add_option("--bytes", arguments->limit_bytes, "At most so many bytes; 0: to the end")
      ->check(CLI::NonNegativeNumber);

  CLI::App* purge = AddVerb(verb, context, "purge",
                            "Give results up, as if their clients had fetched them; every filter "
                            "that is given must match",
                            arguments, RunPurge);
  purge->add_option("uid", arguments->uids, "Of these jobs")->type_name("UID");
  purge->add_option("--app", arguments->app, "Of this application");
  purge->add_option("--ended-before", arguments->ended_before,
                    "Of jobs that ended before: a time, or 2h for ago");
  purge->add_flag("--all", arguments->all, "Every result");
  purge->add_flag("--dry-run", arguments->dry_run, "Only count");
  purge->add_flag("--yes", arguments->yes, "Do not ask");
}

}  // namespace onepiece::cli
