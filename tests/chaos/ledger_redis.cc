#include "tests/chaos/ledger_redis.h"

#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cluster/base/ids.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/local/ports.h"
#include "cluster/local/process.h"
#include "tests/chaos/ledger_audit.h"
#include "tests/chaos/ledger_bytes.h"
#include "tests/chaos/ledger_load.h"
#include "tests/chaos/ledger_nemesis.h"
#include "tests/eventually.h"

namespace onepiece::ledger {
namespace redis {
namespace {

using paxos::sim::Random;
using std::chrono::milliseconds;
using std::chrono::seconds;
using v1::Job;

constexpr int kServers = 2, kClients = 4;
constexpr double kJobsPerS = 5;  // As LoadOptions has it.
constexpr char kProgram[] = "/usr/bin/redis-server", kHost[] = "127.0.0.1";
constexpr auto kStart = seconds(20), kCall = seconds(5), kDeliver = seconds(15),
               kGate = seconds(60);
constexpr auto kPing = milliseconds(500), kTick = milliseconds(50), kRetry = milliseconds(200);
constexpr int kMisses = 3;
constexpr auto kRestart = milliseconds(200);
constexpr auto kMachineAway = seconds(5);
constexpr char kCancelled[] = "CANCELLED", kWaitMs[] = "1000";

using Answer = absl::StatusOr<std::optional<std::string>>;  // Of nil, nullopt.

/// One connection. Thread-confined.
class Connection {
 public:
  Connection(int port, base::Duration timeout) {
    const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
    const timeval limit{.tv_sec = micros / 1'000'000, .tv_usec = micros % 1'000'000};
    context_.reset(redisConnectWithTimeout(kHost, port, limit));
    if (context_ != nullptr && context_->err == 0) redisSetTimeout(context_.get(), limit);
  }
  /// A connection that failed once fails for ever.
  Answer Do(const std::vector<std::string>& words) {
    if (context_ == nullptr || context_->err != 0) return absl::UnavailableError("no connection");
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    const std::unique_ptr<void, void (*)(void*)> reply(
        redisCommandArgv(context_.get(), static_cast<int>(words.size()), texts.data(),
                         sizes.data()),
        &freeReplyObject);
    if (reply == nullptr) return absl::UnavailableError(context_->errstr);
    const auto& answer = *static_cast<const redisReply*>(reply.get());
    if (answer.type == REDIS_REPLY_NIL) return std::nullopt;
    if (answer.type == REDIS_REPLY_INTEGER) return std::to_string(answer.integer);
    std::string text(answer.str, answer.len);
    if (answer.type == REDIS_REPLY_ERROR) return absl::UnavailableError(text);
    return text;
  }

 private:
  struct Free {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  std::unique_ptr<redisContext, Free> context_;
};

/// Returns the value of a field of INFO, empty if it has none.
std::string Field(const Answer& info, const std::string& name) {
  if (!info.ok() || !info->has_value()) return "";
  const std::string text = absl::StrCat("\r\n", **info);
  const std::size_t at = text.find(absl::StrCat("\n", name, ":"));
  if (at == std::string::npos) return "";
  const std::size_t value = at + name.size() + 2;
  return text.substr(value, text.find('\r', value) - value);
}

/// The two servers, their supervisor, and the operator's script.
///
/// Threading: Start() and the destructor are one thread's, the rest may be used from any thread.
class Pair {
 public:
  ~Pair() {
    operator_ = std::jthread();
    for (const Server& server : servers_) {
      if (server.pid <= 0) continue;
      ::kill(server.pid, SIGKILL);
      ::waitpid(server.pid, nullptr, 0);
    }
  }
  absl::Status Start(const std::string& folder) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::vector<int> ports, local::FreePorts(kServers));
    for (int i = 0; i < kServers; ++i) {
      At(i).port = ports[static_cast<std::size_t>(i)];
      At(i).folder = absl::StrCat(folder, "/redis-", i + 1);
      std::filesystem::create_directories(At(i).folder);
    }
    for (int i = 0; i < kServers; ++i) ONEPIECE_RETURN_IF_ERROR(Launch(i));
    operator_ = std::jthread([this](const std::stop_token& stop) { Operate(stop); });
    const bool up = testing::Eventually(base::Scaled(kStart), [&] { return IsInSync(); });
    return up ? absl::OkStatus() : absl::DeadlineExceededError("the replica does not get in sync");
  }

  [[nodiscard]] int primary() const { return primary_; }
  [[nodiscard]] int port(int server) const { return servers_.at(Index(server)).port; }
  [[nodiscard]] pid_t pid(int server) const { return servers_.at(Index(server)).pid; }
  [[nodiscard]] std::int64_t failovers() const { return failovers_; }
  void SetAway(int server, base::Duration time) { At(server).away = time; }

  /// Whether the replica has all that the primary had when this began.
  [[nodiscard]] bool IsInSync() const {
    const int primary = primary_;
    const Answer leads = Connection(port(primary), kPing).Do({"INFO", "replication"});
    const Answer follows = Connection(port(1 - primary), kPing).Do({"INFO", "replication"});
    const std::string needs = Field(leads, "master_repl_offset");
    const std::string has = Field(follows, "slave_repl_offset");
    return Field(leads, "role") == "master" && Field(follows, "master_link_status") == "up" &&
           !needs.empty() && !has.empty() && std::stoll(has) >= std::stoll(needs);
  }

 private:
  struct Server {
    int port = 0;
    std::string folder;
    std::atomic<pid_t> pid = 0;
    std::atomic<base::Duration> away = base::Duration(kRestart);  ///< After its next death.
    base::MonotonicTime restart_at;
  };
  static std::size_t Index(int server) { return static_cast<std::size_t>(server); }
  Server& At(int server) { return servers_.at(Index(server)); }

  absl::Status Launch(int server) {
    Server& one = At(server);
    local::SpawnOptions spawn;
    spawn.arguments = {kProgram,       "--port", absl::StrCat(one.port),
                       "--bind",       kHost,    "--dir",
                       one.folder,     "--save", "",
                       "--appendonly", "yes",    "--appendfsync",
                       "everysec"};
    spawn.output_path = one.folder + "/log";
    if (server != primary_) {
      for (const std::string& word :
           {std::string("--replicaof"), std::string(kHost), absl::StrCat(port(primary_))})
        spawn.arguments.push_back(word);
    }
    ONEPIECE_ASSIGN_OR_RETURN(const local::ProcessId process, local::Spawn(spawn));
    one.pid = process.pid;
    return absl::OkStatus();
  }

  void Supervise(int server) {
    Server& one = At(server);
    if (one.pid > 0 && ::waitpid(one.pid, nullptr, WNOHANG) == one.pid) {
      one.pid = 0;
      one.restart_at = Now() + one.away.exchange(kRestart);
    }
    if (one.pid == 0 && Now() >= one.restart_at) (void)Launch(server);  // The next tick retries.
  }

  void Operate(const std::stop_token& stop) {
    int misses = 0;
    base::MonotonicTime next_ping = Now();
    while (!stop.stop_requested()) {
      base::SystemClock().Pause(stop, kTick);
      for (int i = 0; i < kServers; ++i) Supervise(i);
      if (Now() < next_ping) continue;
      next_ping = Now() + kPing;
      misses = Connection(port(primary_), kPing).Do({"PING"}).ok() ? 0 : misses + 1;
      Connection other(port(1 - primary_), kPing);
      const Answer info = other.Do({"INFO", "replication"});
      const bool is_whole = info.ok() && Field(info, "master_sync_in_progress") != "1";
      if (misses >= kMisses && is_whole && other.Do({"REPLICAOF", "NO", "ONE"}).ok()) {
        primary_ = 1 - primary_;
        ++failovers_;
        misses = 0;
      } else if (Field(info, "role") == "master") {
        (void)other.Do({"REPLICAOF", kHost, std::to_string(port(primary_))});
      }
    }
  }

  std::array<Server, kServers> servers_;
  std::atomic<int> primary_ = 0;
  std::atomic<std::int64_t> failovers_ = 0;
  std::jthread operator_;
};

/// A client's way to the primary of the moment. Thread-confined.
class Primary {
 public:
  explicit Primary(const Pair& pair) : pair_(pair) {}
  Answer Do(const std::vector<std::string>& words) {
    if (connection_ == nullptr || dialled_ != pair_.primary()) {
      dialled_ = pair_.primary();
      connection_ = std::make_unique<Connection>(pair_.port(dialled_), base::Scaled(kCall));
    }
    Answer answer = connection_->Do(words);
    if (!answer.ok()) connection_.reset();
    return answer;
  }
  /// What the end's record says. NOT_FOUND if there is none.
  absl::StatusOr<Word> Ask(const std::string& uid) {
    const auto asked = Now();
    ONEPIECE_ASSIGN_OR_RETURN(const std::optional<std::string> end, Do({"GET", "end:" + uid}));
    if (!end) return absl::NotFoundError("no end");
    return WordOf(*end, asked);
  }
  absl::StatusOr<std::string> Fetch(const std::string& uid) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes, Do({"GET", "result:" + uid}));
    if (!bytes) return absl::DataLossError("no result");
    base::Sha256 sha256;
    sha256.Update(*bytes);
    return sha256.FinishHex();
  }
  /// An end is CANCELLED, or the digest of the result.
  [[nodiscard]] Word WordOf(const std::string& end, base::MonotonicTime asked) const {
    const bool cancelled = end == kCancelled;
    return {.proxy = absl::StrCat("redis-", dialled_ + 1),
            .asked = asked,
            .had = Now(),
            .state = cancelled ? Job::CANCELLED : Job::SUCCEEDED,
            .reason = "",
            .sha256 = cancelled ? "" : end};
  }

 private:
  const Pair& pair_;
  std::unique_ptr<Connection> connection_;
  int dialled_ = 0;
};

/// A producer and the client of its results. Thread-confined, except refused() after the end.
class Producer {
 public:
  Producer(const RunOptions& options, int number, bool wait, const Pair& pair, Ledger& ledger,
           Stopwatch& stopwatch)
      : options_(options),
        wait_(wait),
        redis_(pair),
        ledger_(ledger),
        stopwatch_(stopwatch),
        random_(options.seed * 1000 + static_cast<std::uint64_t>(number) + 1) {}

  void Run(const std::stop_token& stop) {
    const auto turn = std::chrono::duration_cast<base::Duration>(
        std::chrono::duration<double>(kClients / kJobsPerS));
    base::MonotonicTime next = Now();
    while (!stop.stop_requested()) {
      next = std::max(next + turn, Now());
      Submit(stop);
      if (!ended_.empty()) Look(random_.Pick(ended_));
      MakeRoom();
      if (next > Now()) base::SystemClock().Pause(stop, next - Now());
    }
  }
  [[nodiscard]] std::int64_t refused() const { return refused_; }

 private:
  void Submit(const std::stop_token& stop) {
    const std::string uid = base::Uid::GenerateRandom().ToString();
    std::string bytes(static_cast<std::size_t>(DrawSize(random_, options_.largest_bytes)), '\0');
    const auto size = static_cast<std::int64_t>(bytes.size());
    const std::uint64_t seed = random_.Next();
    Bytes(seed).Next(bytes);
    const Order order{.sha256 = ExpectedSha256(seed, size),
                      .sent = Now(),
                      .deadline = seconds(60),
                      .result_ttl = seconds(3600)};
    const bool cancel = random_.Below(100) < static_cast<std::uint64_t>(options_.cancel_percent);
    if (cancel) End(uid, kCancelled, order, /*cancel=*/true);
    const auto give_up = order.sent + base::Scaled(kDeliver);
    while (!(redis_.Do({"SET", "result:" + uid, bytes}).ok() &&
             End(uid, order.sha256, order, cancel))) {
      if (Now() >= give_up || stop.stop_requested()) {
        ++refused_;
        return;
      }
      base::SystemClock().Pause(stop, kRetry);
    }
    ended_.push_back(uid);
    Meet(uid, size);
  }

  /// Ends the job, and tells the ledger which end it has. Returns whether that is known.
  bool End(const std::string& uid, const std::string& end, const Order& order, bool cancel) {
    const auto asked = Now();
    const Answer before = redis_.Do({"SET", "end:" + uid, end, "NX", "GET"});
    if (!before.ok()) return false;
    if (wait_) {
      const Answer copies = redis_.Do({"WAIT", "1", kWaitMs});
      if (!copies.ok() || *copies == "0") return false;
    }
    const Word word = redis_.WordOf(before->value_or(end), asked);
    ledger_.Accepted(uid, order);
    if (cancel) ledger_.Asked(uid, Wish::kCancel);
    ledger_.Told(uid, word);
    if (word.state == Job::SUCCEEDED) stopwatch_.Add(order.sent, word.had - order.sent);
    return true;
  }

  /// The shares are those of OnePiece's load: 64 % stay unfetched.
  void Meet(const std::string& uid, std::int64_t size) {
    const std::uint64_t drawn = random_.Below(100);
    if (drawn >= 80) return Take(uid);
    if (drawn >= 64) Fetch(uid);
    if (size <= kMediumBytes) return;
    large_.emplace_back(uid, size);
    held_ += size;
  }
  bool Fetch(const std::string& uid) {
    const auto sha256 = redis_.Fetch(uid);
    if (sha256.ok()) ledger_.Fetched(uid, *sha256);
    return sha256.ok();
  }
  void Take(const std::string& uid) {
    if (!ledger_.MustBeThere(uid) || !Fetch(uid)) return;
    ledger_.Asked(uid, Wish::kAcknowledge);
    (void)redis_.Do({"DEL", "result:" + uid});  // Nobody counts on it any more.
  }
  void Look(const std::string& uid) {
    const auto word = redis_.Ask(uid);
    if (word.ok()) ledger_.Told(uid, *word);
  }
  void MakeRoom() {
    if (held_ < kMakeRoomBytes) return;
    const auto [uid, size] = large_.front();
    large_.pop_front();
    held_ -= size;
    Take(uid);
  }

  const RunOptions& options_;
  const bool wait_;
  Primary redis_;
  Ledger& ledger_;
  Stopwatch& stopwatch_;
  Random random_;
  std::int64_t held_ = 0, refused_ = 0;
  std::deque<std::pair<std::string, std::int64_t>> large_;
  std::vector<std::string> ended_;
};

/// Asks the primary of the moment.
class RedisSource final : public Source {
 public:
  RedisSource(const Pair& pair, base::MonotonicTime deadline) : redis_(pair), deadline_(deadline) {}
  absl::StatusOr<Word> Ask(const std::string& uid) override { return redis_.Ask(uid); }
  absl::StatusOr<std::string> Fetch(const std::string& uid) override { return redis_.Fetch(uid); }
  bool Wait() override {
    testing::Pause(seconds(1));
    return Now() < deadline_;
  }

 private:
  Primary redis_;
  const base::MonotonicTime deadline_;
};

class RedisPatient final : public Patient {
 public:
  explicit RedisPatient(Pair& pair) : pair_(pair) {}
  absl::StatusOr<Cure> Strike(const Injury& injury) override {
    const pid_t pid = pair_.pid(injury.victim);
    if (pid <= 0) return absl::UnavailableError("the server does not run");
    if (injury.kind == Kind::kKill) {
      if (injury.dice % 2 == 1) pair_.SetAway(injury.victim, kMachineAway);
      ::kill(pid, SIGKILL);
      return [] { return absl::OkStatus(); };
    }
    ::kill(pid, SIGSTOP);
    return [pid] {  // It is our child, which nobody else ends.
      ::kill(pid, SIGCONT);
      return absl::OkStatus();
    };
  }
  bool IsWhole(Role) override { return pair_.IsInSync(); }
  bool HasCopies(const std::vector<std::string>&) override { return pair_.IsInSync(); }

 private:
  Pair& pair_;
};

absl::StatusOr<RunReport> RunPair(const RunOptions& options, bool wait) {
  for (const FaultKind& fault : options.faults) {
    if (fault.name != "kill_database" && fault.name != "stop_database") {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_FAULT",
                             "Redis takes kill_database and stop_database");
    }
  }
  ::signal(SIGPIPE, SIG_IGN);  // hiredis writes to a server that has died.
  Pair pair;
  ONEPIECE_RETURN_IF_ERROR(pair.Start(options.folder));
  RunReport report;
  Ledger ledger;
  Stopwatch stopwatch;
  std::vector<std::unique_ptr<Producer>> producers;
  for (int i = 0; i < kClients; ++i)
    producers.push_back(std::make_unique<Producer>(options, i, wait, pair, ledger, stopwatch));
  std::vector<std::jthread> threads;
  for (const auto& producer : producers)
    threads.emplace_back([&producer](const std::stop_token& stop) { producer->Run(stop); });
  WarmUp(options, ledger);
  const auto hurt_from = Now();
  RedisPatient patient(pair);
  Hurt(options, patient, ledger, report);
  for (std::jthread& thread : threads) thread.request_stop();
  threads.clear();
  for (const auto& producer : producers) report.refused["silent"] += producer->refused();
  report.failovers = pair.failovers();
  report.before = stopwatch.Of(base::MonotonicTime::min(), hurt_from);
  report.during = stopwatch.Of(hurt_from, base::MonotonicTime::max());
  testing::Eventually(base::Scaled(kGate), [&] { return pair.IsInSync(); });
  RedisSource source(pair, Now() + seconds(30));  // Nothing comes back later.
  Audit(ledger, source);
  report.verdict = ledger.Judge();
  return report;
}

}  // namespace
}  // namespace redis

absl::StatusOr<RunReport> RunRedis(const RunOptions& options, bool wait) {
  return redis::RunPair(options, wait);
}

}  // namespace onepiece::ledger
