#include "cluster/service/secure_metrics.h"

#include <httplib.h>
#include <openssl/ssl.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/host_port.h"
#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/trust_bundle.h"
#include "cluster/rpc/access_rules.h"
#include "cluster/rpc/door.h"
#include "cluster/telemetry/metrics.h"

namespace onepiece::service {
namespace {

using std::chrono::seconds;

constexpr int kThreads = 4;
/// Of one read or write, and of a connection without a request.
constexpr seconds kIdle{5};
constexpr std::size_t kMostWaiting = 16;

/// A pool of threads. Whoever brings a connection while enough of them wait, waits too.
class BoundedPool final : public httplib::TaskQueue {
 public:
  BoundedPool() {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Work(); });
  }
  void enqueue(std::function<void()> task) override {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return tasks_.size() < kMostWaiting || ending_; });
    tasks_.push_back(std::move(task));
    lock.unlock();
    work_.notify_one();
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_.notify_all();
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return !tasks_.empty() || ending_; });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      room_.notify_one();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, room_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

/// OpenSSL's certificate callback: `files` is an identity::IdentityFiles.
int ShowCertificate(SSL* ssl, void* files) {
  const auto& own = *static_cast<const identity::IdentityFiles*>(files);
  return SSL_use_certificate_file(ssl, own.certificate.c_str(), SSL_FILETYPE_PEM) == 1 &&
                 SSL_use_PrivateKey_file(ssl, own.key.c_str(), SSL_FILETYPE_PEM) == 1
             ? 1
             : 0;
}

bool SetUp(SSL_CTX& context, identity::IdentityFiles& files) {
  // A resumed session would come without a look at the certificate's files.
  SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_cert_cb(&context, ShowCertificate, &files);
  // OpenSSL makes the client prove that it has the key. Who signed the certificate is judged with
  // the request, by the CAs of that moment, and answered with a reason.
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER,
                     [](int /*ok*/, X509_STORE_CTX* /*chain*/) { return 1; });
  return SSL_CTX_set_min_proto_version(&context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_num_tickets(&context, 0) == 1;
}

/// Empty when the client showed none.
absl::StatusOr<std::string> VerifiedCertificate(const SSL* ssl,
                                                const identity::IdentityFiles& files,
                                                const std::string& cluster) {
  X509* const shown = ssl == nullptr ? nullptr : SSL_get1_peer_certificate(ssl);
  if (shown == nullptr) return std::string();
  const identity::Certificate certificate(shown);
  ONEPIECE_ASSIGN_OR_RETURN(const identity::TrustBundle bundle,
                            identity::ReadTrustFile(files.authorities));
  ONEPIECE_ASSIGN_OR_RETURN(
      const identity::Subject subject,
      bundle.Verify(certificate, identity::Purpose::kClient, base::SystemClock().WallNow()));
  ONEPIECE_RETURN_IF_ERROR(identity::CheckCluster(subject, cluster));
  return certificate.ToPem();
}

absl::Status Judge(const httplib::Request& request, const identity::IdentityFiles& files,
                   const rpc::Door& door) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string certificate,
                            VerifiedCertificate(request.ssl, files, door.cluster()));
  ONEPIECE_ASSIGN_OR_RETURN(const rpc::Caller caller,
                            door.Identify(certificate, request.get_header_value("Authorization")));
  return rpc::CheckAccess({.any_node = true, .roles = {}, .scopes = {identity::Scope::kRead}},
                          caller);
}

int HttpCode(const absl::Status& refused) {
  if (absl::IsUnauthenticated(refused)) return 401;
  return absl::IsPermissionDenied(refused) ? 403 : 503;
}

}  // namespace

struct SecureMetrics::Impl {
  Impl(const std::string& identity, telemetry::Metrics& its_metrics, const rpc::Door& its_door)
      : files(identity::FilesOf(identity, identity::kNodeName)),
        metrics(its_metrics),
        door(its_door),
        server([this](SSL_CTX& context) { return SetUp(context, files); }) {
    server.new_task_queue = [] { return new BoundedPool; };
    server.set_read_timeout(kIdle);
    server.set_write_timeout(kIdle);
    server.set_keep_alive_timeout(kIdle.count());
    server.set_payload_max_length(1024);
    // httplib would share the port with other processes.
    server.set_socket_options([](socket_t socket) {
      constexpr int kYes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &kYes, sizeof kYes);
    });
    server.Get("/metrics", [this](const httplib::Request& request, httplib::Response& response) {
      Answer(request, response);
    });
  }
  ~Impl() {
    server.stop();
    if (thread.joinable()) thread.join();
  }

  void Answer(const httplib::Request& request, httplib::Response& response) {
    if (const absl::Status judged = Judge(request, files, door); !judged.ok()) {
      response.status = HttpCode(judged);
      if (response.status == 401) response.set_header("WWW-Authenticate", "Bearer");
      response.set_content(base::GetReason(judged).reason + ": " + base::Message(judged) + "\n",
                           "text/plain");
      return;
    }
    response.set_content(metrics.Text(), "text/plain; version=0.0.4");
  }

  /// Returns the port, or a negative number.
  int Bind(const base::HostPort& where) {
    const int port = std::atoi(where.port.c_str());
    if (port == 0) return server.bind_to_any_port(where.host);
    return server.bind_to_port(where.host, port) ? port : -1;
  }
  absl::Status Listen(const std::string& wanted) {
    const std::optional<base::HostPort> where = base::SplitHostPort(wanted);
    const int bound = where.has_value() ? Bind(*where) : -1;
    if (bound < 0) {
      return base::MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                             "cannot serve metrics on " + wanted +
                                 ": the address is not this host's, or another program has it",
                             {{"address", wanted}});
    }
    address = wanted.substr(0, wanted.rfind(':') + 1) + std::to_string(bound);
    thread = std::thread([this] { server.listen_after_bind(); });
    // stop() does nothing before that.
    while (!server.is_running()) std::this_thread::yield();
    return absl::OkStatus();
  }

  identity::IdentityFiles files;
  telemetry::Metrics& metrics;
  const rpc::Door& door;
  httplib::SSLServer server;
  std::string address;
  std::thread thread;
};

SecureMetrics::SecureMetrics(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SecureMetrics::~SecureMetrics() = default;
const std::string& SecureMetrics::address() const { return impl_->address; }

absl::StatusOr<std::unique_ptr<SecureMetrics>> SecureMetrics::Serve(const std::string& address,
                                                                    const std::string& identity,
                                                                    telemetry::Metrics& metrics,
                                                                    const rpc::Door& door) {
  auto impl = std::make_unique<Impl>(identity, metrics, door);
  ONEPIECE_RETURN_IF_ERROR(impl->Listen(address));
  return std::unique_ptr<SecureMetrics>(new SecureMetrics(std::move(impl)));
}

}  // namespace onepiece::service
