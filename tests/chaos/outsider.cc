#include "tests/chaos/outsider.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/create_channel.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "tests/chaos/ledger_verb.h"
#include "tests/chaos/outsider_wire.h"

namespace onepiece::ledger {
namespace {

constexpr Milliseconds kLookPeriod(1000);
// What loopback addresses are held to. Honest processes share 127.0.0.1, and need some of it.
constexpr std::pair<const char*, int> kSetLimits[] = {
    {"connections", 500}, {"connections_per_s", 200}, {"calls_per_s", 500}, {"calls_burst", 500}};
constexpr int kFloodPerS = 10'000;       // As far as the machine goes.
constexpr std::size_t kHeldMost = 600;   // Connections that say nothing; above the limit.
constexpr std::size_t kSlowMost = 20;    // Sessions that read or write slowly.
constexpr std::uint32_t kStreams = 500;  // Calls of a slow session.
constexpr Milliseconds kPause(5), kSip(20), kSession(8000);
constexpr std::uint32_t kTinyWindow = 1, kWindow = 65535;
constexpr char kGetJob[] = "/onepiece.v1.GenerationService/GetJob";
constexpr char kJoin[] = "/onepiece.v1.IdentityService/Join";

std::string NameOfAnswer(const absl::Status& status) {
  const std::string reason = base::GetReason(status).reason;
  return reason.empty() ? absl::StatusCodeToString(status.code()) : reason;
}

}  // namespace

/// One attack, on a thread of its own.
struct Outsider::Attack {
  Attack(Outsider& whose, std::string its_name, int number, std::stop_token its_stop)
      : outsider(whose),
        name(std::move(its_name)),
        from(absl::StrCat("127.66.0.", number)),
        stop(std::move(its_stop)),
        dice(whose.seed_ + static_cast<std::uint64_t>(number)) {}

  [[nodiscard]] bool Goes() const { return !stop.stop_requested(); }
  void Pause(Milliseconds time) const { base::SystemClock().Pause(stop, time); }
  void Count(const std::string& what, std::int64_t by = 1) const {
    const base::MutexLock lock(outsider.mutex_);
    outsider.attacks_[name][what] += by;
  }
  std::string Pick(std::vector<std::string> addresses) {
    return addresses.empty() ? "127.0.0.1:1" : addresses[dice() % addresses.size()];
  }
  std::string Server() {
    const base::MutexLock lock(outsider.mutex_);
    return Pick(outsider.servers_);
  }
  std::string Endpoint() {
    const base::MutexLock lock(outsider.mutex_);
    return Pick(outsider.endpoints_);
  }
  std::string AnyPort() { return dice() % 4 == 0 ? Endpoint() : Server(); }

  // Bad handshakes, as many as go.
  void Flood() {
    while (Goes()) {
      const auto begun = std::chrono::steady_clock::now();
      for (int i = 0; i < kFloodPerS / 10 && Goes(); ++i) {
        Line line(from, AnyPort());
        Count(line.is_open() ? "connected" : "no connection");
        line.Send(RandomBytes(dice, 300));
      }
      const auto left = begun + Milliseconds(100) - std::chrono::steady_clock::now();
      Pause(std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(left)));
    }
  }

  // Connections that say nothing, or begin a handshake and go no further.
  void Hold(const std::string& hello) {
    std::deque<std::unique_ptr<Line>> held;
    while (Goes()) {
      auto line = std::make_unique<Line>(from, AnyPort());
      Count(line->is_open() ? "connected" : "no connection");
      line->Send(hello);
      held.push_back(std::move(line));
      if (held.size() > kHeldMost) {
        (void)held.front()->Read(1, Milliseconds(0));
        Count(held.front()->is_open() ? "still open" : "ended by the server");
        held.pop_front();
      }
      Pause(kPause);
    }
  }

  // The bytes of a session that succeeded, on other connections.
  void Replay() {
    std::string bytes;
    while (Goes()) {
      if (bytes.empty()) bytes = Record();
      Line line(from, Server());
      line.Send(bytes);
      Count("sent");
      while (line.is_open() && Goes() && !line.Read(1 << 14, Milliseconds(500)).empty()) {
      }
      Count(line.is_open() ? "no answer" : "ended by the server");
      Pause(kPause);
    }
  }
  std::string Record() {
    TlsLine line(from, Server());
    line.Send(Preface(kWindow) + CallHead(1, kGetJob, outsider.token_) + CallBody(1));
    (void)line.Read(1 << 14, Milliseconds(500));
    return line.is_open() ? line.sent() : std::string();
  }

  void Fuzz() {
    while (Goes()) {
      TlsLine line(from, Server());
      Count(line.is_open() ? "sessions" : "no session");
      std::string bytes = dice() % 8 == 0 ? RandomBytes(dice, 200) : Preface(kWindow);
      if (dice() % 2 == 0) bytes += CallHead(1, kGetJob, dice() % 2 == 0 ? outsider.token_ : "");
      for (std::uint64_t i = dice() % 20; i > 0; --i) bytes += WrongFrame(dice);
      line.Send(bytes);
      (void)line.Read(1 << 14, Milliseconds(20));
    }
  }

  /// Keeps some sessions that begin with `bytes`, and does `keep` with each again and again.
  void Slow(const std::string& bytes, const std::function<void(TlsLine&)>& keep) {
    struct Session {
      std::unique_ptr<TlsLine> line;
      std::chrono::steady_clock::time_point begun;
    };
    std::deque<Session> sessions;
    while (Goes()) {
      const auto now = std::chrono::steady_clock::now();
      while (sessions.size() < kSlowMost) {
        sessions.push_back({std::make_unique<TlsLine>(from, Server()), now});
        Count(sessions.back().line->is_open() ? "sessions" : "no session");
        sessions.back().line->Send(bytes);
      }
      for (Session& session : sessions) keep(*session.line);
      std::erase_if(sessions, [&](const Session& session) {
        if (session.line->is_open() && now - session.begun < kSession) return false;
        Count(session.line->is_open() ? "still open" : "ended by the server");
        return true;
      });
      Pause(kSip);
    }
  }
  // Asks for much and takes next to nothing of the answers.
  void SlowRead() {
    std::string bytes = Preface(kTinyWindow);
    for (std::uint32_t i = 0; i < kStreams; ++i)
      bytes += CallHead(2 * i + 1, kGetJob, outsider.token_) + CallBody(2 * i + 1);
    Slow(bytes, [](TlsLine& line) { line.Sip(1); });
  }
  // Begins calls whose requests do not come, of a method that strangers may call.
  void SlowWrite() {
    std::string bytes = Preface(kWindow);
    for (std::uint32_t i = 0; i < kStreams; ++i) bytes += CallHead(2 * i + 1, kJoin, "");
    Slow(bytes, [this](TlsLine& line) {
      if (dice() % 50 == 0) line.Send(Frame(0, 0, 1, std::string(1, '\0')));
    });
  }

  // The same for the metrics: a byte of the request now and then.
  void SlowScrape() {
    std::deque<std::unique_ptr<Line>> lines;
    while (Goes()) {
      while (lines.size() < kSlowMost) {
        lines.push_back(std::make_unique<Line>(from, Endpoint()));
        Count(lines.back()->is_open() ? "connected" : "no connection");
        lines.back()->Send("GET /metrics HTTP/1.1\r\n");
      }
      for (const auto& line : lines) {
        line->Send("x");
        (void)line->Read(1, Milliseconds(0));
      }
      Count("ended by the server", static_cast<std::int64_t>(std::erase_if(
                                       lines, [](const auto& line) { return !line->is_open(); })));
      Pause(Milliseconds(200));
    }
  }

  // A principal that calls as often as it can.
  void CallFlood() {
    const local::ClusterState state = outsider.cluster_.State();
    const auto credentials = rpc::MakeTokenCredentials(state.identity + "/ca.pem", outsider.token_,
                                                       state.cluster_id, base::SystemClock());
    if (!credentials.ok()) {
      Count(credentials.status().ToString());
      return;
    }
    while (Goes()) {
      grpc::ChannelArguments arguments;
      rpc::SetTlsArguments(arguments);
      const auto proxies = outsider.cluster_.Ready(Role::kProxy);
      if (proxies.empty()) continue;
      const auto stub = v1::GenerationService::NewStub(
          grpc::CreateCustomChannel(proxies.front().address, *credentials, arguments));
      v1::GetJobRequest request;
      request.set_name("requests/none");
      for (int i = 0; i < 5000 && Goes(); ++i) {
        const auto answer = rpc::Call(*stub, &v1::GenerationService::Stub::GetJob, request,
                                      std::chrono::seconds(1));
        Count(answer.ok() ? "ok" : NameOfAnswer(answer.status()));
        if (absl::IsUnavailable(answer.status())) break;
      }
    }
  }

  Outsider& outsider;
  const std::string name, from;
  const std::stop_token stop;
  Dice dice;
};

Outsider::~Outsider() { Stop(); }

absl::Status Outsider::Start() {
  const QStringList rest = QStringList{"--reason", "an outsider comes"} + InItsDataDir(cluster_);
  for (const auto& [limit, value] : kSetLimits) {
    const QString key = QString("limits.callers.%1").arg(limit);
    ONEPIECE_RETURN_IF_ERROR(
        RunVerb(cluster_, QStringList{"config", "set", key, QString::number(value)} + rest)
            .status());
  }
  const QStringList create = {"token",   "create", "--name", "outsider",
                              "--scope", "submit", "--json"};
  ONEPIECE_ASSIGN_OR_RETURN(const testing::Outcome made, RunVerb(cluster_, create + rest));
  token_ = made.Document().value("token", "");
  LookOnce();
  threads_.emplace_back([this](const std::stop_token& stop) { Look(stop); });
  // The beginning of a TLS 1.3 ClientHello: 512 bytes are announced, and do not come.
  const std::string half_hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  const std::pair<const char*, std::function<void(Attack&)>> all[] = {
      {"flood", &Attack::Flood},
      {"half_hello", [half_hello](Attack& attack) { attack.Hold(half_hello); }},
      {"silent", [](Attack& attack) { attack.Hold(""); }},
      {"replay", &Attack::Replay},
      {"fuzz", &Attack::Fuzz},
      {"slow_read", &Attack::SlowRead},
      {"slow_write", &Attack::SlowWrite},
      {"slow_scrape", &Attack::SlowScrape},
      {"call_flood", &Attack::CallFlood}};
  int number = 0;
  for (const auto& [name, run] : all) {
    threads_.emplace_back([this, name = std::string(name), run = run,
                           number = ++number](const std::stop_token& stop) {
      Attack attack(*this, name, number, stop);
      run(attack);
    });
  }
  return absl::OkStatus();
}

void Outsider::Stop() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

Attacks Outsider::attacks() const {
  const base::MutexLock lock(mutex_);
  return attacks_;
}

void Outsider::LookOnce() {
  std::vector<std::string> servers, endpoints;
  for (const local::ProcessRecord& process : cluster_.State().processes) {
    if (!process.address.empty()) servers.push_back(process.address);
    if (!process.metrics_address.empty()) endpoints.push_back(process.metrics_address);
  }
  const base::MutexLock lock(mutex_);
  servers_ = std::move(servers);
  endpoints_ = std::move(endpoints);
}

// Processes that start again have other ports.
void Outsider::Look(const std::stop_token& stop) {
  while (base::SystemClock().Pause(stop, kLookPeriod)) LookOnce();
}

std::map<std::string, std::int64_t> ResidentBytesOf(const Cluster& cluster) {
  std::map<std::string, std::int64_t> bytes;
  for (const local::ProcessRecord& process : cluster.State().processes) {
    std::ifstream statm("/proc/" + std::to_string(process.process.pid) + "/statm");
    std::int64_t total = 0, resident = 0;
    if (statm >> total >> resident) bytes[process.node_id] = resident * ::sysconf(_SC_PAGESIZE);
  }
  return bytes;
}

}  // namespace onepiece::ledger
