#include "tests/bench/control_plane/crowd.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"
#include "cluster/local/resources.h"

namespace onepiece::bench {
namespace {

/// How long an answer may come after the limit that the question names.
constexpr base::Duration kAnswerGrace = std::chrono::seconds(10);
/// How soon a stop is noticed.
constexpr int kPollMs = 100;

std::int64_t Milliseconds(base::Duration time) { return time / std::chrono::milliseconds(1); }

absl::Status TooFew(const std::string& what, std::size_t missing, std::size_t nodes,
                    base::Duration limit, const std::string& complaint) {
  return absl::DeadlineExceededError(absl::StrCat(missing, " of ", nodes, " nodes have ", what,
                                                  " after ", limit / std::chrono::seconds(1),
                                                  " s, such as ", complaint));
}

}  // namespace

absl::Status Interrupted() { return absl::CancelledError("interrupted"); }

absl::StatusOr<std::unique_ptr<Crowd>> Crowd::Start(FleetKind kind, std::size_t nodes,
                                                    const std::vector<std::string>& addresses,
                                                    const std::string& dir, std::stop_token stop) {
  std::unique_ptr<Crowd> crowd(new Crowd(nodes, dir, std::move(stop)));
  for (std::size_t first = 0; first < nodes; first += kNodesPerProcess) {
    ONEPIECE_RETURN_IF_ERROR(
        crowd->StartProcess({.kind = kind,
                             .addresses = addresses,
                             .first = first,
                             .count = std::min(kNodesPerProcess, nodes - first)}));
  }
  return crowd;
}

Crowd::~Crowd() {
  for (const Process& process : processes_) {
    close(process.to);
    close(process.from);
    kill(process.id.pid, SIGKILL);
  }
  for (const Process& process : processes_) waitpid(process.id.pid, nullptr, 0);
}

absl::Status Crowd::StartProcess(const FleetPlan& plan) {
  std::array<int, 2> questions{}, answers{};
  if (pipe2(questions.data(), O_CLOEXEC) != 0) return absl::ResourceExhaustedError("no pipe");
  if (pipe2(answers.data(), O_CLOEXEC) != 0) {
    close(questions[0]);
    close(questions[1]);
    return absl::ResourceExhaustedError("no pipe");
  }
  const auto id = local::Spawn(
      {.arguments = {local::SelfPath(), "fleet",
                     plan.kind == FleetKind::kEtcd ? "--etcd" : "--ours", "--addresses",
                     absl::StrJoin(plan.addresses, ","), "--first", absl::StrCat(plan.first),
                     "--count", absl::StrCat(plan.count), "--in", absl::StrCat(questions[0]),
                     "--out", absl::StrCat(answers[1])},
       .output_path = absl::StrCat(dir_, "/nodes-", plan.first, ".log"),
       .keep_fds = {questions[0], answers[1]},
       .clean_environment = true});
  close(questions[0]);
  close(answers[1]);
  if (!id.ok()) {
    close(questions[1]);
    close(answers[0]);
    return id.status();
  }
  processes_.push_back({.id = *id, .to = questions[1], .from = answers[0]});
  return absl::OkStatus();
}

absl::StatusOr<std::string> Crowd::ReadLine(Process& process, base::MonotonicTime deadline) {
  for (;;) {
    if (const std::size_t end = process.heard.find('\n'); end != std::string::npos) {
      std::string line = process.heard.substr(0, end);
      process.heard.erase(0, end + 1);
      return line;
    }
    if (stop_.stop_requested()) return Interrupted();
    if (base::SystemClock().Now() > deadline)
      return absl::DeadlineExceededError("a process of light nodes does not answer");
    pollfd waiting{process.from, POLLIN, 0};
    if (poll(&waiting, 1, kPollMs) <= 0) continue;
    std::array<char, 4096> bytes{};
    const ssize_t count = read(process.from, bytes.data(), bytes.size());
    if (count <= 0)
      return absl::UnavailableError("a process of light nodes has ended; see nodes-*.log");
    process.heard.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

absl::StatusOr<Crowd::Answer> Crowd::Ask(const std::string& what, std::int64_t version,
                                         base::Duration limit) {
  const std::string question = absl::StrCat(what, " ", version, " ", Milliseconds(limit), "\n");
  for (const Process& process : processes_) {
    // A pipe that does not take a line has no reader any more, which ReadLine() reports.
    [[maybe_unused]] const ssize_t written = write(process.to, question.data(), question.size());
  }
  Answer all;
  const base::MonotonicTime deadline = base::SystemClock().Now() + limit + kAnswerGrace;
  for (Process& process : processes_) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string line, ReadLine(process, deadline));
    std::istringstream words(line);
    std::int64_t last_ns = 0;
    std::size_t missing = 0;
    words >> last_ns >> missing;
    all.last = std::max(all.last, base::MonotonicTime(base::Duration(last_ns)));
    all.missing += missing;
    if (missing > 0 && all.complaint.empty()) std::getline(words >> std::ws, all.complaint);
  }
  return all;
}

absl::StatusOr<base::MonotonicTime> Crowd::WaitForTables(std::int64_t version,
                                                         base::Duration limit) {
  ONEPIECE_ASSIGN_OR_RETURN(const Answer all, Ask(kTables, version, limit));
  if (all.missing == 0) return all.last;
  return TooFew(absl::StrCat("no table of version ", version), all.missing, nodes_, limit,
                all.complaint);
}

absl::StatusOr<base::MonotonicTime> Crowd::WaitForHeartbeats(base::MonotonicTime since,
                                                             base::Duration limit) {
  ONEPIECE_ASSIGN_OR_RETURN(const Answer all,
                            Ask(kHeartbeats, since.time_since_epoch().count(), limit));
  if (all.missing == 0) return all.last;
  return TooFew("no answer to a heartbeat", all.missing, nodes_, limit, all.complaint);
}

}  // namespace onepiece::bench
