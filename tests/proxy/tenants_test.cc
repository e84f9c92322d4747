// Tenants at a proxy, over TLS: each sees its own jobs, and nothing tells it that there are others.
#include <QTemporaryDir>
#include <QtTest>

#include "cluster/identity/token.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/security/credentials.h"
#include "tests/channel_with.h"
#include "tests/identities.h"
#include "tests/proxy/proxy_cluster.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::proxy {
namespace {

using Stub = v1::GenerationService::Stub;
constexpr char kOwnCluster[] = "pirates";

/// A served cluster whose proxy has a door. Its databases are insecure.
struct SecuredCluster : Cluster {
  SecuredCluster() {
    authority.SaveNode(folder.path().toStdString() + "/proxy", "proxy-1", {identity::Role::kProxy});
    const auto credentials = rpc::MakeServerCredentials(
        {.folder = folder.path().toStdString() + "/proxy", .name = "node", .roles = {}},
        rpc::Clients::kAlsoWithoutCertificate, base::SystemClock());
    Require(credentials.status());
    const rpc::ServerOptions options{.credentials = *credentials, .door = &door};
    proxy.emplace(*this, "proxy-1", 256, base::SystemClock(), options);
    fresh.emplace(*this, "proxy-2", 256, base::SystemClock(), options);
  }
  /// A client with a token of its own, of `proxy` or another one.
  std::unique_ptr<Stub> ClientOf(const std::string& tenant, const std::string& scopes,
                                 const std::string& app = "", Proxy* of = nullptr) {
    const auto token = identity::BearerToken::Generate();
    v1::BearerToken& known = *table.add_bearer_tokens();
    known.set_secret_hash(identity::HashOfSecret(token.secret));
    known.set_name("someone");
    known.set_tenant(tenant);
    known.set_scopes(scopes);
    known.set_app_id(app);
    known.set_expires_unix_ms(
        base::ToUnixMs(base::SystemClock().WallNow() + std::chrono::hours(1)));
    table.set_epoch(table.epoch() + 1);
    door.Take(table);
    const auto credentials =
        rpc::MakeTokenCredentials(folder.path().toStdString() + "/proxy/ca.pem", token.Format(),
                                  kOwnCluster, base::SystemClock());
    Require(credentials.status());
    return std::make_unique<Stub>(
        testing::ChannelWith((of == nullptr ? *proxy : *of).server.address(), *credentials));
  }

  const QTemporaryDir folder;
  const testing::TestAuthority authority{kOwnCluster};
  v1::IdentityTable table;
  rpc::Door door{kOwnCluster, base::SystemClock()};
  FakeInstance instance{*this};
  std::optional<Proxy> proxy;
  std::optional<Proxy> fresh;  ///< It has seen no job, so it asks the databases whose one is.
};

template <typename Request, typename Response>
absl::StatusOr<Response> Ask(Stub& stub,
                             grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                          Response*),
                             const std::string& name) {
  Request request;
  request.set_name(name);
  return rpc::Call(stub, method, request, 15s);
}

/// The end of a stream.
template <typename Request, typename Reader>
absl::Status EndOf(Stub& stub,
                   std::unique_ptr<Reader> (Stub::*method)(grpc::ClientContext*, const Request&),
                   const std::string& name) {
  grpc::ClientContext context;
  rpc::SetTimeout(context, 15s);
  Request request;
  request.set_name(name);
  return rpc::FromGrpc((stub.*method)(&context, request)->Finish());
}

/// What every call that names a job answers, by the call's name.
std::map<std::string, absl::Status> AskAll(Stub& stub, const std::string& name) {
  return {{"GetJob", Ask(stub, &Stub::GetJob, name).status()},
          {"CancelJob", Ask(stub, &Stub::CancelJob, name).status()},
          {"WatchJob", EndOf(stub, &Stub::WatchJob, name)},
          {"FetchResult", EndOf(stub, &Stub::FetchResult, name)},
          {"AcknowledgeResult", Ask(stub, &Stub::AcknowledgeResult, name).status()},
          {"GetJobTrace", Ask(stub, &Stub::GetJobTrace, name).status()},
          {"DeleteJob", Ask(stub, &Stub::DeleteJob, name).status()}};
}

int Listed(Stub& stub, const std::string& tenant = "") {
  v1::ListJobsRequest request;
  request.set_tenant(tenant);
  const auto page = rpc::Call(stub, &Stub::ListJobs, request, 15s);
  return page.ok() ? page->jobs_size() : -1;
}

constexpr char kAllOwn[] = "submit,read-own,cancel-own";

}  // namespace

class TenantsTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { rpc::RequireTls13(); }

 private Q_SLOTS:
  void ForeignJobs_AreUnknown_InEveryCallAndByTheSameWords() {
    SecuredCluster cluster;
    const auto films = cluster.ClientOf("films", kAllOwn),
               games = cluster.ClientOf("games", kAllOwn);
    const auto job = rpc::Call(*films, &Stub::SubmitJob, Request(), 15s);
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QCOMPARE(job->tenant(), std::string("films"));
    const auto elsewhere = cluster.ClientOf("games", kAllOwn, "", &*cluster.fresh);
    const std::string nobodys = base::Uid::GenerateRandom().ToString();
    const auto unknown = AskAll(*games, "jobs/" + nobodys);
    for (Stub* stub : {games.get(), elsewhere.get()}) {
      for (const auto& [call, status] : AskAll(*stub, job->name())) {
        const std::string what = call + ": " + status.ToString();
        QVERIFY2(absl::IsNotFound(status), what.c_str());
        QCOMPARE(Reason(status), Reason(unknown.at(call)));
        std::string text = base::Message(status);
        const std::size_t at = text.find(job->uid());
        QVERIFY2(at != std::string::npos, what.c_str());
        QCOMPARE(text.replace(at, nobodys.size(), nobodys), base::Message(unknown.at(call)));
      }
    }
    QCOMPARE(Listed(*games), 0);
    QCOMPARE(Listed(*games, "films"), 0);
    QCOMPARE(Listed(*films), 1);
    const auto own = Ask(*films, &Stub::GetJob, job->name());
    QVERIFY(own.ok() && own->state() != Job::CANCELLED);
    QVERIFY(Ask(*films, &Stub::CancelJob, job->name()).ok());
  }

  void OneRequestId_IsEachTenantsOwn() {
    SecuredCluster cluster;
    const auto films = cluster.ClientOf("films", kAllOwn),
               games = cluster.ClientOf("games", kAllOwn);
    const v1::SubmitJobRequest request = RequestWithId();
    const auto first = rpc::Call(*films, &Stub::SubmitJob, request, 15s);
    QVERIFY(first.ok());
    // Nobody learns that the id is taken elsewhere.
    QVERIFY(
        absl::IsNotFound(Ask(*games, &Stub::GetJob, "requests/" + request.request_id()).status()));
    const auto other = rpc::Call(*games, &Stub::SubmitJob, request, 15s);
    QVERIFY2(other.ok(), other.status().ToString().c_str());
    QVERIFY(first->uid() != other->uid());
    QCOMPARE(rpc::Call(*films, &Stub::SubmitJob, request, 15s)->uid(), first->uid());
    QVERIFY(Ask(*films, &Stub::GetJob, "requests/" + request.request_id()).ok());
  }

  void WiderScopes_SeeAndChangeAllTenantsJobs() {
    SecuredCluster cluster;
    const auto films = cluster.ClientOf("films", kAllOwn);
    const auto reader = cluster.ClientOf("audit", "read"),
               operator_ = cluster.ClientOf("ops", "operate");
    const auto job = rpc::Call(*films, &Stub::SubmitJob, Request(), 15s);
    QVERIFY(job.ok());
    QVERIFY(Ask(*reader, &Stub::GetJob, job->name()).ok());
    QCOMPARE(Listed(*reader), 1);
    QCOMPARE(Listed(*reader, "films"), 1);
    QCOMPARE(Listed(*reader, "games"), 0);
    QCOMPARE(Reason(Ask(*reader, &Stub::CancelJob, job->name()).status()),
             std::string("MISSING_SCOPE"));
    // To acknowledge is to purge, so reading is not enough.
    QVERIFY(absl::IsNotFound(Ask(*reader, &Stub::AcknowledgeResult, job->name()).status()));
    QVERIFY(Ask(*operator_, &Stub::CancelJob, job->name()).ok());
  }

  void WhoMaySubmitOnly_LearnsOfRequestIdsAndOfNoJob() {
    SecuredCluster cluster;
    const auto writer = cluster.ClientOf("films", "submit");
    const v1::SubmitJobRequest request = RequestWithId();
    const auto job = rpc::Call(*writer, &Stub::SubmitJob, request, 15s);
    QVERIFY(job.ok());
    QCOMPARE(Reason(Ask(*writer, &Stub::GetJob, job->name()).status()),
             std::string("MISSING_SCOPE"));
    const auto known = Ask(*writer, &Stub::GetJob, "requests/" + request.request_id());
    QVERIFY(known.ok() && known->uid().empty());
  }

  void AProxyThatIsLeftAlone_GrantsTheWholeQuota() {
    SecuredCluster cluster;
    v1::Tenant& films = *cluster.table.add_tenants();
    films.set_name("films");
    films.mutable_quota()->set_jobs_in_flight(2);
    const auto client = cluster.ClientOf("films", kAllOwn);
    QVERIFY(rpc::Call(*client, &Stub::SubmitJob, Request(), 15s).ok());
    // The other half is the other proxy's.
    QCOMPARE(Reason(rpc::Call(*client, &Stub::SubmitJob, Request(), 15s).status()),
             std::string("QUOTA_EXCEEDED"));
    cluster.ChangeTable([](v1::RoutingTable& table) {
      while (table.proxies_size() > 1) table.mutable_proxies()->RemoveLast();
    });
    QVERIFY(rpc::Call(*client, &Stub::SubmitJob, Request(), 15s).ok());
    QCOMPARE(Reason(rpc::Call(*client, &Stub::SubmitJob, Request(), 15s).status()),
             std::string("QUOTA_EXCEEDED"));
  }

  void ATokenOfOneApplication_IsForNoOther() {
    SecuredCluster cluster;
    const auto all = cluster.ClientOf("films", kAllOwn);
    const auto other = cluster.ClientOf("films", kAllOwn, "other");
    const auto job = rpc::Call(*all, &Stub::SubmitJob, Request(), 15s);
    QVERIFY(job.ok());
    QCOMPARE(Reason(rpc::Call(*other, &Stub::SubmitJob, Request(), 15s).status()),
             std::string("FOREIGN_APP"));
    QVERIFY(absl::IsNotFound(Ask(*other, &Stub::GetJob, job->name()).status()));
    QCOMPARE(Listed(*other), 0);
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::TenantsTest)
#include "tenants_test.moc"
