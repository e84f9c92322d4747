// The verb logs.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/cli/verbs.h"
#include "cluster/rpc/channel.h"
#include "cluster/terminal/interrupt.h"
#include "onepiece/v1/telemetry.grpc.pb.h"

namespace onepiece::cli {
namespace {

constexpr base::Duration kLogTimeout = std::chrono::seconds(2);
constexpr base::Duration kRetryPause = std::chrono::seconds(1);
constexpr std::size_t kMaxNodes = 64;  // Each node has a thread.
constexpr int kFullResponse = 256;     // A response with fewer lines means no more for now.
constexpr int kAllLines = 1000;        // A server keeps this many lines.

struct LogArguments {
  std::vector<std::string> nodes;
  std::string level = "info";  // A key of Levels().
  int lines = 100;
  bool follow = false;
};

const std::map<std::string, v1::LogLevel>& Levels() {
  static const std::map<std::string, v1::LogLevel> levels = {{"debug", v1::LOG_DEBUG},
                                                             {"info", v1::LOG_INFO},
                                                             {"warning", v1::LOG_WARNING},
                                                             {"error", v1::LOG_ERROR}};
  return levels;
}

std::string LevelName(v1::LogLevel level) {
  for (const auto& [name, value] : Levels()) {
    if (value == level) return name;
  }
  return "unknown";
}

std::string LogTimeText(std::int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixNanos(unix_ns),
                          absl::UTCTimeZone());
}

// A log may quote text from strangers, whose control characters could be aimed at the terminal.
std::string Printable(std::string text) {
  for (char& c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) c = ' ';
  }
  return text;
}

struct Line {
  std::string node_id;
  v1::LogLine line;
};

Json LineDocument(const Line& line) {
  return {{"node_id", line.node_id},
          {"number", line.line.number()},
          {"time", LogTimeText(line.line.unix_ns())},
          {"unix_ns", line.line.unix_ns()},
          {"level", LevelName(line.line.level())},
          {"text", line.line.text()}};
}

std::string LineText(const Line& line) {
  return absl::StrFormat("%s  %-20s  %-7s  %s\n", LogTimeText(line.line.unix_ns()), line.node_id,
                         LevelName(line.line.level()), Printable(line.line.text()));
}

absl::StatusOr<std::vector<v1::Node>> ChooseNodes(const v1::Cluster& cluster,
                                                  const std::vector<std::string>& names) {
  std::vector<v1::Node> nodes;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(cluster.nodes(), name, &v1::Node::node_id);
    if (found == cluster.nodes().end()) {
      return base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN",
                             "there is no node '" + name + "': `onepiece status` names all",
                             {{"node_id", name}});
    }
    nodes.push_back(*found);
  }
  for (const v1::Node& node : cluster.nodes()) {
    if (names.empty() && node.state() != v1::Node::DEAD) nodes.push_back(node);
  }
  if (nodes.size() > kMaxNodes) {
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "TOO_MANY_NODES",
        absl::StrFormat("%d nodes: name at most %d of them", nodes.size(), kMaxNodes));
  }
  return nodes;
}

using ResponseSink = std::function<void(const v1::TailLogsResponse& response)>;

/// Passes the last `backlog` lines of a server on. With `follow` it then passes new lines on until
/// `stop` or the end of the stream.
absl::Status Tail(const std::string& address, const LogArguments& arguments, int backlog,
                  const ResponseSink& sink, const std::stop_token& stop) {
  v1::TailLogsRequest request;
  request.set_min_level(Levels().at(arguments.level));
  request.set_backlog(backlog);
  const auto stub = v1::TelemetryService::NewStub(rpc::MakeChannel(address));
  grpc::ClientContext context;
  if (!arguments.follow) rpc::SetTimeout(context, kLogTimeout);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  const auto reader = stub->TailLogs(&context, request);
  v1::TailLogsResponse response;
  bool complete = false;
  while (!complete && reader->Read(&response)) {
    sink(response);
    complete = !arguments.follow && response.lines_size() < kFullResponse;
  }
  context.TryCancel();
  const grpc::Status end = reader->Finish();
  return complete ? absl::OkStatus() : rpc::FromGrpc(end);
}

/// What the nodes' threads bring together. Thread-safe.
class Collector {
 public:
  void Take(const std::string& node_id, const v1::TailLogsResponse& response) {
    const base::MutexLock lock(mutex_);
    for (const v1::LogLine& line : response.lines()) lines_.push_back({node_id, line});
    dropped_[node_id] += response.dropped();
  }
  void Fail(const std::string& node_id, const absl::Status& status) {
    const base::MutexLock lock(mutex_);
    errors_[node_id] = status;
  }
  int Print(const Context& context, const v1::Cluster& cluster) {
    const base::MutexLock lock(mutex_);
    std::ranges::stable_sort(lines_, {}, [](const Line& line) { return line.line.unix_ns(); });
    Json document = {{"cluster_id", cluster.cluster_id()},
                     {"lines", Json::array()},
                     {"dropped", Json::object()},
                     {"errors", Json::object()}};
    std::string text;
    for (const Line& line : lines_) {
      if (context.json) document["lines"].push_back(LineDocument(line));
      if (!context.json) text += LineText(line);
    }
    for (const auto& [node_id, count] : dropped_) {
      if (count > 0) document["dropped"][node_id] = count;
    }
    for (const auto& [node_id, status] : errors_)
      document["errors"][node_id] = base::Message(status);
    context.Print(document, text);
    for (const auto& [node_id, status] : errors_)
      context.Say("onepiece: the log of " + node_id + ": " + base::Message(status));
    return errors_.empty() ? terminal::kOk : terminal::kUnavailable;
  }

 private:
  base::Mutex mutex_;
  std::vector<Line> lines_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t> dropped_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Status> errors_ ABSL_GUARDED_BY(mutex_);
};

int PrintBacklog(const Context& context, const v1::Cluster& cluster,
                 const std::vector<v1::Node>& nodes, const LogArguments& arguments,
                 const std::stop_token& stop) {
  Collector collector;
  {
    std::vector<std::jthread> threads;
    for (const v1::Node& node : nodes) {
      threads.emplace_back([&] {
        const ResponseSink sink = [&](const v1::TailLogsResponse& response) {
          collector.Take(node.node_id(), response);
        };
        const absl::Status status = Tail(node.address(), arguments, arguments.lines, sink, stop);
        if (!status.ok()) collector.Fail(node.node_id(), status);
      });
    }
  }
  if (stop.stop_requested()) return terminal::kInterrupted;
  return collector.Print(context, cluster);
}

/// Writes lines as they come; nothing tears. Thread-safe.
class LineWriter {
 public:
  explicit LineWriter(const Context& context) : context_(context) {}
  void Write(const Line& line) { Write(LineDocument(line), LineText(line)); }
  void Write(const Json& document, const std::string& text) {
    const base::MutexLock lock(mutex_);
    if (context_.json) {
      std::cout << document.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
    } else {
      std::cout << text << std::flush;
    }
  }
  void Say(const std::string& text) {
    const base::MutexLock lock(mutex_);
    context_.Say("onepiece: " + text);
  }

 private:
  const Context& context_;
  base::Mutex mutex_;  // Held while a line is written to the terminal.
};

/// Follows one node over its restarts.
void FollowNode(client::Client& client, v1::Node node, const LogArguments& arguments,
                LineWriter& writer, const std::stop_token& stop) {
  v1::LogLine last;
  const ResponseSink sink = [&](const v1::TailLogsResponse& response) {
    if (response.dropped() > 0) {
      writer.Write(Json{{"node_id", node.node_id()}, {"dropped", response.dropped()}},
                   absl::StrFormat("(%s: %d lines dropped)\n", node.node_id(), response.dropped()));
    }
    for (const v1::LogLine& line : response.lines()) {
      // A new process counts its lines anew, and a new stream brings old lines again. A line is old
      // only if both its number and its time are.
      if (line.number() <= last.number() && line.unix_ns() <= last.unix_ns()) continue;
      last = line;
      writer.Write({node.node_id(), line});
    }
  };
  for (int backlog = arguments.lines; !stop.stop_requested(); backlog = kAllLines) {
    const absl::Status end = Tail(node.address(), arguments, backlog, sink, stop);
    if (stop.stop_requested()) return;
    writer.Say("the log of " + node.node_id() + ": " + base::Message(end) + "; trying again");
    if (!base::SystemClock().Pause(stop, kRetryPause)) return;
    // The node may have another address by now.
    const auto cluster = client.GetCluster();
    if (!cluster.ok()) continue;
    const auto found = std::ranges::find(cluster->nodes(), node.node_id(), &v1::Node::node_id);
    if (found != cluster->nodes().end()) node = *found;
  }
}

int RunLogs(const Context& context, const LogArguments& arguments) {
  const terminal::Interrupt interrupt;  // Must come before the client's threads start.
  const auto client = context.MakeManagerClient();
  if (!client.ok()) return context.Fail(client.status());
  const auto cluster = (*client)->GetCluster();
  if (!cluster.ok()) return context.Fail(cluster.status());
  const auto nodes = ChooseNodes(*cluster, arguments.nodes);
  if (!nodes.ok()) return context.Fail(nodes.status());
  const std::stop_token stop = interrupt.token();
  if (!arguments.follow) return PrintBacklog(context, *cluster, *nodes, arguments, stop);
  LineWriter writer(context);
  {
    std::vector<std::jthread> threads;
    for (const v1::Node& node : *nodes)
      threads.emplace_back([&] { FollowNode(**client, node, arguments, writer, stop); });
  }
  return terminal::kInterrupted;
}

}  // namespace

void DefineLogs(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<LogArguments>();
  verb.add_option("nodes", arguments->nodes, "Of these nodes; default: all that live")
      ->type_name("NODE");
  verb.add_flag("-f,--follow", arguments->follow,
                "Go on with new lines until Ctrl-C; with --json one document a line");
  verb.add_option("--level", arguments->level, "At least this grave")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}, CLI::ignore_case))
      ->capture_default_str();
  verb.add_option("-n,--lines", arguments->lines, "Of each node, of the past, at most")
      ->check(CLI::Range(0, kAllLines))
      ->capture_default_str();
  verb.callback([&context, arguments] {
    context.action = [&context, arguments] { return RunLogs(context, *arguments); };
  });
}

}  // namespace onepiece::cli
