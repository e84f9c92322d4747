// `onepiece-bench-collectives collectives`: collective operations over the fabric beside gloo's and
// MPI's, on this host. Each contest is a few processes, started by exec, that measure everything;
// the contestants take turns.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "stages/collectives/socket_rendezvous.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/collectives/contestants.h"
#include "tests/bench/pairs.h"

namespace onepiece::bench {
namespace {

constexpr char kPart[] = "part";
constexpr std::chrono::seconds kGiveUpAfter(240);

/// Microseconds by what was measured.
using Times = std::map<std::string, double>;

struct Plan {
  std::vector<std::string> peers = {"gloo", "mpi"};
  std::vector<int> ranks = {2, 4};
  int runs = 3;
  double batch_us = 20'000;
  bool json = false;
};

absl::Status Failed(const std::string& what) {
  return base::MakeError(absl::StatusCode::kUnavailable, "CONTEST_FAILED", what);
}

/// Processes of one contest. The destructor ends those that still run.
class Crew {
 public:
  Crew() { ready_ = pipe2(output_.data(), O_CLOEXEC) == 0; }
  ~Crew() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    for (const int fd : output_) {
      if (fd >= 0) close(fd);
    }
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  absl::Status Start(std::vector<std::string> command) {
    if (!ready_) return Failed("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output_[1], STDOUT_FILENO);
    std::vector<char*> argv;
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t pid = -1;
    const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return Failed("cannot start " + command[0]);
    pids_.push_back(pid);
    return absl::OkStatus();
  }

  /// Reads what they print until all have ended.
  absl::StatusOr<Times> Finish() {
    close(std::exchange(output_[1], -1));
    const base::MonotonicTime deadline = base::SystemClock().Now() + base::Scaled(kGiveUpAfter);
    std::string text;
    std::array<char, 4096> bytes;
    for (ssize_t size = 1; size > 0;) {
      pollfd ready{.fd = output_[0], .events = POLLIN, .revents = 0};
      if (base::SystemClock().Now() > deadline) return Failed("it takes too long");
      if (poll(&ready, 1, 1000) <= 0) continue;
      size = read(output_[0], bytes.data(), bytes.size());
      text.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    }
    bool well = true;
    for (const pid_t pid : std::exchange(pids_, {})) {
      int status = 0;
      waitpid(pid, &status, 0);
      well &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    if (!well) return Failed("a process of the contest failed");
    Times times;
    std::istringstream lines(text);
    std::string name;
    for (double value = 0; lines >> name >> value;) times[name] = value;
    return times;
  }

 private:
  std::array<int, 2> output_{-1, -1};
  bool ready_ = false;
  std::vector<pid_t> pids_;
};

std::string ProgramBeside(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

absl::StatusOr<Times> Contest(const Plan& plan, const std::string& who, int ranks) {
  const std::string batch = std::to_string(plan.batch_us);
  Crew crew;
  if (who == "mpi") {
    ONEPIECE_RETURN_IF_ERROR(crew.Start({"mpiexec.mpich", "-n", std::to_string(ranks),
                                         ProgramBeside("onepiece-bench-mpi"), batch}));
    return crew.Finish();
  }
  std::string folder =
      (std::filesystem::temp_directory_path() / "onepiece-bench-collectives-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return Failed("no temporary folder");
  const std::string cluster = "bench-collectives-" + std::to_string(getpid());
  absl::StatusOr<Times> times = Failed("not begun");
  {
    ONEPIECE_ASSIGN_OR_RETURN(
        const auto hub,
        collectives::RendezvousHub::Listen(HubPath(folder), static_cast<std::uint32_t>(ranks)));
    absl::Status started;
    for (int rank = 0; rank < ranks && started.ok(); ++rank) {
      started = crew.Start({"/proc/self/exe", kPart, who, std::to_string(ranks),
                            std::to_string(rank), folder, "shm://" + cluster, batch});
    }
    times = started.ok() ? crew.Finish() : started;
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  (void)fabric::UnlinkStale(cluster);
  return times;
}

int RunPart(const std::vector<std::string>& arguments) {
  if (arguments.size() != 6) return 2;
  const Meeting meeting{.ranks = std::atoi(arguments[1].c_str()),
                        .rank = std::atoi(arguments[2].c_str()),
                        .folder = arguments[3],
                        .fabric = arguments[4]};
#ifdef ONEPIECE_HAVE_GLOO
  auto joined = arguments[0] == "gloo" ? JoinGloo(meeting) : JoinFabric(meeting);
#else
  auto joined = JoinFabric(meeting);
#endif
  if (!joined.ok()) {
    std::fprintf(stderr, "%s\n", joined.status().ToString().c_str());
    return 1;
  }
  RunContest(**joined, std::atof(arguments[5].c_str()));
  return 0;
}

/// The contestants' numbers of all runs, by what was measured.
using Series = std::map<std::string, std::vector<double>>;

void AddRows(const std::string& peer, int ranks, bool first, const Series& ours,
             const Series& theirs, BenchReport& report) {
  const std::string crew = std::to_string(ranks) + "p";
  for (const auto& [what, values] : ours) {
    Pairs pairs{.ours = values, .theirs = {}};
    if (const auto found = theirs.find(what); found != theirs.end()) pairs.theirs = found->second;
    if (pairs.theirs.size() != values.size()) continue;  // It has no such operation, or failed.
    const bool change = what == "group_change";
    if (change && !first) continue;  // The row's name has no number of processes.
    report.results.push_back(pairs.Row(
        {.name = change ? "collectives.group_change." + peer
                        : "collectives.fabric." + what + "." + crew + "." + peer,
         .peer = peer,
         .workload = change ? "the first barrier of a new group less one of a group that stands"
                            : what + " among " + std::to_string(ranks) + " processes, F32",
         .metric = "time",
         .unit = "us"}));
  }
}

BenchReport Measure(const Plan& plan) {
  BenchReport report;
  for (const int ranks : plan.ranks) {
    std::map<std::string, Series> series;
    std::vector<std::string> contestants = {"fabric"};
    contestants.insert(contestants.end(), plan.peers.begin(), plan.peers.end());
    for (int run = 0; run < plan.runs; ++run) {
      for (const std::string& who : contestants) {
        const auto times = Contest(plan, who, ranks);
        if (!times.ok()) {
          std::fprintf(stderr, "%s: %s\n", who.c_str(), times.status().ToString().c_str());
          continue;
        }
        for (const auto& [what, value] : *times) series[who][what].push_back(value);
      }
    }
    for (const std::string& peer : plan.peers)
      AddRows(peer, ranks, ranks == plan.ranks.front(), series["fabric"], series[peer], report);
  }
  return report;
}

int Main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == kPart) return RunPart({argv + 2, argv + argc});
  CLI::App app{"Collective operations over the fabric beside gloo's and MPI's",
               "onepiece-bench-collectives"};
  Plan plan;
  bool quick = false;
  CLI::App* verb = app.add_subcommand("collectives", "Measure");
  app.require_subcommand(1);
  verb->add_flag("--json", plan.json, "Print one JSON document");
  verb->add_option("--peers", plan.peers, "Whom to compare with")
      ->delimiter(',')
      ->check(CLI::IsMember({"gloo", "mpi"}))
      ->capture_default_str();
  verb->add_option("--ranks", plan.ranks, "Numbers of processes")
      ->delimiter(',')
      ->check(CLI::Range(2, 8))
      ->capture_default_str();
  verb->add_option("--runs", plan.runs, "Alternations")->check(CLI::Range(1, 100));
  verb->add_flag("--quick", quick, "One short run of each: a first look");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::warn);
  if (quick) plan.runs = 1, plan.batch_us = 2000;
  Print(Measure(plan), plan.json);
  return 0;
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) { return onepiece::bench::Main(argc, argv); }
