// A server with a door holds connections and calls to the limits, over real TLS.
#include "cluster/rpc/limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>
#include <atomic>
#include <thread>

#include "cluster/identity/token.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "onepiece/v1/identity.grpc.pb.h"
#include "tests/channel_with.h"
#include "tests/eventually.h"
#include "tests/identities.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

using std::chrono::seconds;

constexpr char kPirates[] = "pirates";

class Jobs final : public v1::GenerationService::Service {
 public:
  // "large" is more than a client's window takes.
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* job) override {
    while (request->name() == "held" && held)
      if (!base::SystemClock().Pause(stopping, std::chrono::milliseconds(5))) break;
    if (request->name() == "large") job->set_uid(std::string(4 << 20, 'x'));
    return grpc::Status::OK;
  }
  // Goes on until its caller leaves.
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::Job>* writer) override {
    writer->Write(v1::Job());
    while (!context->IsCancelled())
      if (!base::SystemClock().Pause(stopping, std::chrono::milliseconds(5))) break;
    return grpc::Status::OK;
  }
  std::stop_token stopping;
  std::atomic<bool> held = false;  ///< GetJob of "held" waits.
};

/// A plain TCP connection of the address `from` to a port of this host.
class Tcp {
 public:
  Tcp(const char* from, int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Tcp() { close(fd_); }
  Tcp(const Tcp&) = delete;
  Tcp& operator=(const Tcp&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  /// Waits until the server ends the connection.
  [[nodiscard]] bool Ends(base::Duration limit) const {
    pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, static_cast<int>(limit / std::chrono::milliseconds(1))) <= 0)
      return false;
    char byte = 0;
    return recv(fd_, &byte, 1, 0) <= 0;
  }

 private:
  const int fd_;
  bool connected_ = false;
};

}  // namespace

class LimitsTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { RequireTls13(); }

 private Q_SLOTS:
  void init() {
    authority_.SaveNode(Folder("node"), "p1", {identity::Role::kProxy});
    door_ = std::make_unique<Door>(kPirates, base::SystemClock());
    Start("127.0.0.1:0");
  }
  void cleanup() {
    channels_.clear();
    server_.reset();
    door_.reset();
  }

  void APrincipal_IsHeldToItsRate_AndNobodyElse() {
    Follow([](v1::CallerLimits& limits) {
      limits.set_calls_per_s(10);
      limits.set_calls_burst(10);
    });
    const auto ci = Connect("ci"), eve = Connect("eve"), node = ConnectNode();
    absl::Status last;
    for (int i = 0; i < 100 && last.ok(); ++i) last = Get(*ci);
    QVERIFY2(absl::IsResourceExhausted(last), last.ToString().c_str());
    QCOMPARE(Reason(last), std::string("TOO_MANY_CALLS"));
    QVERIFY2(base::Message(last).starts_with("principal/ci makes more than 10 calls/s"),
             last.ToString().c_str());
    const absl::Status other = Get(*eve);
    QVERIFY2(other.ok(), other.ToString().c_str());
    // Nodes may call as they like.
    for (int i = 0; i < 30; ++i) QCOMPARE(Reason(Get(*node)), std::string("WRONG_ROLE"));
    QVERIFY(door_->limits().calls.refused() > 0);
  }

  // A refused stranger may not keep other strangers away from Join.
  void Strangers_HaveAnAccountForEachConnection() {
    Follow([](v1::CallerLimits& limits) {
      limits.set_calls_per_s(10);
      limits.set_calls_burst(10);
    });
    const auto stranger = ConnectStranger(), other = ConnectStranger();
    absl::Status last;
    for (int i = 0; i < 100 && Reason(last) != "TOO_MANY_CALLS"; ++i) last = Join(stranger);
    QCOMPARE(Reason(last), std::string("TOO_MANY_CALLS"));
    QVERIFY2(base::Message(last).starts_with("nobody makes more"), last.ToString().c_str());
    QVERIFY(absl::IsUnimplemented(Join(other)));
  }

  void Streams_CountAsUnderWay_UntilTheyEnd() {
    Follow([](v1::CallerLimits& limits) { limits.set_calls_under_way(10); });
    const auto ci = Connect("ci");
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::Job>>> streams;
    v1::Job job;
    for (int i = 0; i < 10; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      SetTimeout(*contexts.back(), seconds(30));
      streams.push_back(ci->WatchJob(contexts.back().get(), {}));
      QVERIFY(streams.back()->Read(&job));
    }
    QCOMPARE(Reason(Get(*ci)), std::string("TOO_MANY_CALLS_UNDER_WAY"));
    contexts.front()->TryCancel();
    (void)streams.front()->Finish();
    QVERIFY(testing::Eventually(seconds(10), [&] { return Get(*ci).ok(); }));
    for (const auto& context : contexts) context->TryCancel();
    for (std::size_t i = 1; i < streams.size(); ++i) (void)streams[i]->Finish();
  }

  // In a synchronous handler they would hold a thread each, for as long as the client answers
  // pings.
  void AnswersThatAreNotTaken_EndTheirCalls() {
    Follow([](v1::CallerLimits& limits) { limits.set_calls_under_way(10); });
    const auto ci = Connect("ci");
    grpc::GenericStub unread(channels_.back());
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::GenericClientAsyncReaderWriter>> calls;
    grpc::CompletionQueue queue;
    const auto wait = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    const grpc::Slice large("\x0a\x05large");  // GetJobRequest.name.
    for (int i = 0; i < 10; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      SetTimeout(*contexts.back(), seconds(120));
      calls.push_back(unread.PrepareCall(contexts.back().get(),
                                         "/onepiece.v1.GenerationService/GetJob", &queue));
      calls.back()->StartCall(nullptr);
      QVERIFY(wait());
      calls.back()->WriteLast(grpc::ByteBuffer(&large, 1), {}, nullptr);
      QVERIFY(wait());  // Nobody asks for the answer.
    }
    QVERIFY(testing::Eventually(seconds(20), [&] { return !Get(*ci).ok(); }));
    QVERIFY(testing::Eventually(seconds(20), [&] { return Get(*ci).ok(); }));
    calls.clear();
    contexts.clear();
  }

  // Such calls hold a thread each, and others need some too.
  void CallsThatAreNoStreams_HaveHalfOfTheThreads() {
    jobs_.held = true;
    const auto ci = Connect("ci"), eve = Connect("eve");
    std::atomic<int> refused = 0, ended = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < CallerLimits::kUnaryUnderWay + 20; ++i) {
      threads.emplace_back([&] {
        const absl::Status status = Get(*ci, "held");
        refused += Reason(status) == "TOO_MANY_CALLS_UNDER_WAY";
        ++ended;
      });
    }
    QVERIFY(testing::Eventually(seconds(20), [&] { return refused == 20; }));
    QCOMPARE(ended.load(), 20);
    QVERIFY(Get(*eve).ok());
    jobs_.held = false;
  }

  void AnAddressAtItsLimit_IsClosedAtOnce_AndOthersAreServed() {
    Follow([](v1::CallerLimits& limits) { limits.set_connections(3); });
    std::vector<std::unique_ptr<Tcp>> silent;
    for (int i = 0; i < 3; ++i) silent.push_back(std::make_unique<Tcp>("127.0.0.2", port_));
    QVERIFY(Tcp("127.0.0.2", port_).Ends(seconds(10)));
    QVERIFY(!silent.front()->Ends({}));
    const auto ci = Connect("ci");
    QVERIFY(Get(*ci).ok());
    using Verdict = ConnectionLimits::Verdict;
    QVERIFY(door_->limits().connections.Refused(Verdict::kTooMany) > 0);
    // Who leaves makes room.
    silent.clear();
    QVERIFY(testing::Eventually(seconds(10), [&] {
      const Tcp again("127.0.0.2", port_);
      return !again.Ends(std::chrono::milliseconds(300));
    }));
  }

  void BadHandshakes_AreHeldToARate() {
    Follow([](v1::CallerLimits& limits) { limits.set_connections_per_s(10); });
    for (int i = 0; i < 200; ++i) QVERIFY(Tcp("127.0.0.2", port_).connected());
    QVERIFY(testing::Eventually(seconds(10), [&] {
      using Verdict = ConnectionLimits::Verdict;
      return door_->limits().connections.Refused(Verdict::kTooOften) > 100;
    }));
    QVERIFY(Get(*Connect("ci")).ok());
  }

  void AnotherServer_CannotShareThePort_AndMayFollow() {
    const std::string address = server_->address();
    Door door(kPirates, base::SystemClock());
    Server second(Options(address, door));
    const absl::Status status = second.Start().status();
    QCOMPARE(Reason(status), std::string("CANNOT_LISTEN"));
    QCOMPARE(base::Message(status), "cannot listen on " + address + ": Address already in use");
    QVERIFY(Get(*Connect("ci")).ok());  // So the old one has a connection to leave behind.
    server_->Shutdown(base::Duration::zero());
    QVERIFY(!Tcp("127.0.0.1", port_).connected());
    QCOMPARE(Server(Options(address, door)).Start().value_or(0), port_);
  }

  void Wildcards_AndNames_AreListenedOn() {
    for (const char* listen : {"0.0.0.0:0", "[::]:0", "localhost:0"}) {
      cleanup();
      door_ = std::make_unique<Door>(kPirates, base::SystemClock());
      Start(listen);
      QVERIFY2(Get(*Connect("ci")).ok(), listen);
    }
  }

 private:
  using Stub = v1::GenerationService::Stub;

  std::string Folder(const std::string& name) {
    return temp_.filePath(QString::fromStdString(name)).toStdString();
  }
  ServerOptions Options(const std::string& listen, Door& door) {
    return {.listen = listen,
            .answer_limit = std::chrono::milliseconds(500),
            .credentials = *MakeServerCredentials(
                {.folder = Folder("node")}, Clients::kAlsoWithoutCertificate, base::SystemClock()),
            .door = &door};
  }
  void Start(const std::string& listen) {
    server_ = std::make_unique<Server>(Options(listen, *door_));
    jobs_.stopping = server_->stopping();
    server_->AddService(jobs_);
    server_->AddService(identity_);
    const auto port = server_->Start();
    QVERIFY2(port.ok(), port.status().ToString().c_str());
    port_ = *port;
  }
  void Follow(const std::function<void(v1::CallerLimits&)>& set) {
    v1::CallerLimits limits;
    set(limits);
    door_->limits().Follow(limits);
  }
  std::unique_ptr<Stub> StubOn(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    channels_.push_back(testing::ChannelWith("127.0.0.1:" + std::to_string(port_), credentials));
    return v1::GenerationService::NewStub(channels_.back());
  }
  std::unique_ptr<Stub> Connect(const std::string& name) {
    authority_.SavePrincipal(Folder(name), name, {identity::Scope::kReadOwn});
    return StubOn(
        *MakeChannelCredentials({.folder = Folder(name), .name = name}, base::SystemClock()));
  }
  std::unique_ptr<Stub> ConnectNode() {
    return StubOn(*MakeChannelCredentials({.folder = Folder("node")}, base::SystemClock()));
  }
  std::shared_ptr<grpc::Channel> ConnectStranger() {
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
            authority_.authority().certificate().ToPem()));
    options.watch_root_certs();
    options.set_verify_server_certs(true);
    options.set_check_call_host(false);
    (void)StubOn(grpc::experimental::TlsCredentials(options));
    return channels_.back();
  }
  static absl::Status Join(const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = v1::IdentityService::NewStub(channel);
    return Call(*stub, &v1::IdentityService::Stub::Join, v1::JoinRequest(), seconds(20)).status();
  }
  static absl::Status Get(Stub& stub, const std::string& name = "") {
    v1::GetJobRequest request;
    request.set_name(name);
    return Call(stub, &Stub::GetJob, request, seconds(60)).status();
  }

  const QTemporaryDir temp_;
  const testing::TestAuthority authority_{kPirates};
  std::unique_ptr<Door> door_;
  Jobs jobs_;
  v1::IdentityService::Service identity_;
  std::unique_ptr<Server> server_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  int port_ = 0;
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::LimitsTest)
#include "limits_test.moc"
