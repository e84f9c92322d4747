// Kills database processes with kill -9 while results come in. An announced result can be fetched
// intact, and soon has its copies again. The test plays the NodeManager, the last stage and the
// proxy. ONEPIECE_LONG=1: 10,000 jobs and 20 kills; Qt then needs QTEST_FUNCTION_TIMEOUT=3600000.
#include <QtTest>
#include <filesystem>
#include <map>
#include <random>

#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "cluster/fabric/fabric.h"
#include "cluster/job/job_record.h"
#include "cluster/node/job_records.h"
#include "cluster/node/outbox.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/eventually.h"
#include "tests/fetch_whole.h"
#include "tests/test_main.h"

namespace onepiece::chaos {
namespace {

using namespace std::chrono_literals;
using testing::Eventually;
using v1::Job;

constexpr base::Duration kDeadline = 15s;

/// Tells databases about each other, and about a death only when the test says so. May be used from
/// any thread.
class Registry final : public v1::NodeManagerService::Service {
 public:
  explicit Registry(std::string cluster_id) : cluster_id_(std::move(cluster_id)) {
    table_.set_epoch(1);
    view_.SetRouting(std::make_shared<const node::Routing>(table_));
    server_.AddService(*this);
    started_ = server_.Start().ok();
  }
  ~Registry() override { server_.Shutdown(base::Duration::zero()); }
  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] const std::string& address() const { return server_.address(); }
  [[nodiscard]] const node::ClusterView& view() const { return view_; }
  void Forget(const std::string& node_id) {
    const base::MutexLock lock(mutex_);
    Remove(node_id);
    Publish();
  }

  grpc::Status RegisterNode(grpc::ServerContext*, const v1::RegisterNodeRequest* request,
                            v1::RegisterNodeResponse* response) override {
    const base::MutexLock lock(mutex_);
    *response->mutable_node() = request->node();
    response->set_cluster_id(cluster_id_);
    response->set_report_interval_ms(200);
    v1::Endpoint endpoint;
    endpoint.set_node_id(request->node().node_id());
    endpoint.set_incarnation(request->node().incarnation());
    endpoint.set_address(request->node().address());
    Remove(endpoint.node_id());
    *table_.add_databases() = endpoint;
    *table_.add_alive() = endpoint;
    Publish();
    return grpc::Status::OK;
  }
  grpc::Status ReportNode(grpc::ServerContext*, const v1::ReportNodeRequest*,
                          v1::ReportNodeResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status DeregisterNode(grpc::ServerContext*, const v1::DeregisterNodeRequest*,
                              google::protobuf::Empty*) override {
    return grpc::Status::OK;
  }
  grpc::Status WatchRouting(grpc::ServerContext* context, const v1::WatchRoutingRequest*,
                            grpc::ServerWriter<v1::RoutingTable>* writer) override {
    std::uint64_t told = 0;
    base::MutexLock lock(mutex_);
    while (!context->IsCancelled() && !server_.stopping().stop_requested()) {
      if (table_.epoch() > told) {
        told = table_.epoch();
        const v1::RoutingTable table = table_;
        lock.Unlock();
        writer->Write(table);
        lock.Lock();
      } else {
        changed_.WaitFor(lock, 10ms);
      }
    }
    return grpc::Status::OK;
  }

 private:
  // The caller of either function holds mutex_.
  void Remove(const std::string& node_id) {
    for (auto* list : {table_.mutable_databases(), table_.mutable_alive()}) {
      for (int i = list->size() - 1; i >= 0; --i) {
        if (list->Get(i).node_id() == node_id) list->DeleteSubrange(i, 1);
      }
    }
  }
  void Publish() {
    table_.set_epoch(table_.epoch() + 1);
    view_.SetRouting(std::make_shared<const node::Routing>(table_));
    changed_.NotifyAll();
  }

  const std::string cluster_id_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  v1::RoutingTable table_;
  node::ClusterView view_;
  bool started_ = false;
  rpc::Server server_{rpc::ServerOptions{}};
};

/// The databases, and the clients that give them jobs. Thread-confined.
class Databases {
 public:
  Databases()
      : id_(base::Uid::GenerateRandom().ToString()),
        fabric_(fabric::Fabric::Open("shm://" + id_).value()),
        registry_(id_),
        outbox_(node::Outbox::Create(*fabric_, registry_.view(), {.node_id = "last-stage"})),
        records_(registry_.view()) {}
  ~Databases() {
    for (auto& [id, process] : processes_) Kill(id);
    outbox_->Close();
    // A killed process leaves shared memory, which the process that started it removes.
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename().string();
      std::error_code gone;
      if (name.starts_with("onepiece." + id_)) std::filesystem::remove(entry.path(), gone);
    }
  }
  Databases(const Databases&) = delete;
  Databases& operator=(const Databases&) = delete;

  bool Start(const std::string& id) {
    auto process = std::make_unique<QProcess>();
    process->setProcessChannelMode(QProcess::MergedChannels);
    process->setStandardOutputFile(QString::fromStdString(Log(id)), QIODevice::Append);
    process->start(ONEPIECE_BINARY_DIR "/bin/onepiece-database",
                   {"--insecure", "--node-id", QString::fromStdString(id), "--nodemanager",
                    QString::fromStdString(registry_.address()), "--listen", "127.0.0.1:0",
                    "--fabric", QString::fromStdString("shm://" + id_)});
    if (!process->waitForStarted()) return false;
    processes_[id] = std::move(process);
    return Eventually(20s, [&] { return EndpointOf(id).has_value(); });
  }
  /// Kills it with SIGKILL. The routing still names it.
  void Kill(const std::string& id) {
    QProcess& process = *processes_.at(id);
    process.kill();
    process.waitForFinished();
  }
  void Forget(const std::string& id) { registry_.Forget(id); }
  [[nodiscard]] std::string Log(const std::string& id) const {
    return temp_.path().toStdString() + "/" + id + ".log";
  }

  /// Runs a job from its creation to its last stage's result. Returns false if a process died in
  /// between.
  bool RunJob(const base::Uid& uid, const std::string& bytes) {
    const base::WallTime now = base::SystemClock().WallNow();
    v1::JobRecord record;
    Job& job = *record.mutable_job();
    job.set_uid(uid.ToString());
    job.set_name("jobs/" + job.uid());
    job.set_app_id("app");
    *job.mutable_create_time() = job::ToTimestamp(now);
    job::SetTimeLimit(kDeadline, now, record);
    record.set_fingerprint("f");
    if (!records_.Create(record).ok()) return false;
    message::Message message;
    message.header.kind = message::Kind::kResult;
    message.header.uid = uid;
    message.header.app = "app";
    message.header.ingress_time = now;
    message.header.deadline = base::SystemClock().Now() + kDeadline;
    message.artifacts.push_back(message::BytesArtifact("video", "video/mp4", bytes));
    const auto delivered = outbox_->Deliver(message, node::Destination::DatabasesFor(uid),
                                            base::SystemClock().Now() + 10s);
    if (!delivered.ok()) return false;
    // Does what an instance does: until the database has stored the result, it is the holder of the
    // job.
    v1::UpdateJobRequest update;
    update.set_uid(uid.ToString());
    v1::WorkHolder& holder = *update.add_placed();
    holder.set_node_id(delivered->endpoint.node_id());
    holder.set_incarnation(delivered->endpoint.incarnation());
    holder.set_stage("last");
    holder.set_from("last");
    holder.set_stage_index(1);
    return records_.Update(update).ok();
  }
  bool HasBytes(const v1::Endpoint& database, const base::Uid& uid) {
    const auto record = RecordAt(database, uid);
    return record.ok() && record->has_bytes();
  }
  absl::StatusOr<std::string> Fetch(const base::Uid& uid) {
    return testing::FetchWhole(records_, uid);
  }
  /// Returns NOT_FOUND if no database knows the job.
  absl::StatusOr<Job> Find(const base::Uid& uid) {
    const auto record = records_.Get(uid);
    if (!record.ok()) return record.status();
    return record->job();
  }
  bool Succeeded(const base::Uid& uid) {
    const auto job = Find(uid);
    return job.ok() && job->state() == Job::SUCCEEDED;
  }
  std::vector<v1::Endpoint> All() { return registry_.view().routing()->Databases(); }
  /// Returns what each database says of itself, of its peers and of these jobs.
  std::string Describe(const std::vector<base::Uid>& uids) {
    std::string text;
    for (const v1::Endpoint& database : All()) {
      const auto itself = rpc::Call(StubOf(database), &v1::DatabaseService::Stub::GetDatabase,
                                    v1::GetDatabaseRequest(), 5s);
      text += database.node_id() + ": " +
              (itself.ok() ? itself->ShortDebugString() : itself.status().ToString()) + "\n";
      for (const base::Uid& uid : uids) {
        const auto record = RecordAt(database, uid);
        text += "  " + uid.ToString() + ": " +
                (record.ok() ? record->ShortDebugString() : record.status().ToString()) + "\n";
      }
      QFile log(QString::fromStdString(Log(database.node_id())));
      if (log.open(QIODevice::ReadOnly)) text += log.readAll().toStdString();
    }
    return text;
  }

 private:
  v1::DatabaseService::Stub& StubOf(const v1::Endpoint& database) {
    auto& stub = stubs_[database.address()];
    if (stub == nullptr) stub = v1::DatabaseService::NewStub(rpc::MakeChannel(database.address()));
    return *stub;
  }
  absl::StatusOr<v1::JobRecord> RecordAt(const v1::Endpoint& database, const base::Uid& uid) {
    v1::GetJobRecordRequest request;
    request.set_uid(uid.ToString());
    return rpc::Call(StubOf(database), &v1::DatabaseService::Stub::GetJob, request, 5s);
  }
  std::optional<v1::Endpoint> EndpointOf(const std::string& id) {
    for (const v1::Endpoint& database : All()) {
      if (database.node_id() == id && !seen_.contains(database.incarnation())) {
        seen_.insert(database.incarnation());
        return database;
      }
    }
    return std::nullopt;
  }

  QTemporaryDir temp_;
  const std::string id_;
  std::unique_ptr<fabric::Fabric> fabric_;
  Registry registry_;
  std::unique_ptr<node::Outbox> outbox_;
  node::JobRecords records_;
  std::map<std::string, std::unique_ptr<QProcess>> processes_;
  std::map<std::string, std::unique_ptr<v1::DatabaseService::Stub>> stubs_;
  std::set<std::uint64_t> seen_;  // Incarnations.
};

// Takes those away that every database has. True when none is left.
bool HaveTwoCopies(Databases& databases, std::vector<base::Uid>& announced) {
  const std::vector<v1::Endpoint> both = databases.All();
  std::erase_if(announced, [&](const base::Uid& uid) {
    return std::ranges::all_of(
        both, [&](const v1::Endpoint& database) { return databases.HasBytes(database, uid); });
  });
  return announced.empty();
}

}  // namespace

class DatabaseChaosTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void KilledDatabases_LoseNoResultThatWasAnnounced() {
    const bool is_long = qEnvironmentVariableIntValue("ONEPIECE_LONG") != 0;
    const int jobs = is_long ? 10'000 : 300;
    const int kills = is_long ? 20 : 5;
    const unsigned seed = std::random_device{}();
    qInfo("seed %u", seed);
    std::mt19937 random(seed);
    Databases databases;
    QVERIFY(databases.Start("db-1"));
    QVERIFY(databases.Start("db-2"));
    std::map<base::Uid, std::string> sent;  // The SHA-256 of the sent bytes.
    std::vector<base::Uid> delivered;
    for (int kill = 0; kill < kills; ++kill) {
      const std::string victim = random() % 2 == 0 ? "db-1" : "db-2";
      const int round = jobs / kills;
      const int dies = static_cast<int>(random() % static_cast<unsigned>(round));
      const int noticed = dies + static_cast<int>(random() % 5);
      for (int i = 0; i < round; ++i) {
        if (i == dies) databases.Kill(victim);
        if (i == noticed) databases.Forget(victim);
        std::string bytes(1 + random() % 100'000, '\0');
        for (char& byte : bytes) byte = static_cast<char>(random());
        const base::Uid uid = base::Uid::GenerateRandom();
        sent[uid] = base::Sha256Hex(bytes);
        if (databases.RunJob(uid, bytes)) delivered.push_back(uid);
      }
      databases.Forget(victim);
      std::vector<base::Uid> announced;
      for (const auto& [uid, sha256] : sent) {
        if (databases.Succeeded(uid)) announced.push_back(uid);
      }
      QElapsedTimer since;
      since.start();
      QVERIFY(databases.Start(victim));
      const bool restored =
          Eventually(is_long ? 300s : 60s, [&] { return HaveTwoCopies(databases, announced); });
      if (!restored) qWarning("%s", databases.Describe(announced).c_str());
      QVERIFY2(restored, qPrintable(QString("%1 results have one copy").arg(announced.size())));
      qInfo("kill %d: two copies of all again after %lld ms", kill + 1, since.elapsed());
    }
    std::size_t succeeded = 0;
    for (const auto& [uid, sha256] : sent) {
      if (!databases.Succeeded(uid)) continue;
      ++succeeded;
      const auto bytes = databases.Fetch(uid);
      QVERIFY2(bytes.ok(), bytes.status().ToString().c_str());
      QCOMPARE(base::Sha256Hex(*bytes), sha256);
    }
    // A result in a ring that nobody reads any more is not announced. Nobody waits for it either:
    // its job ends with the database's death, or by its deadline if only the dead process knew of
    // the hand-over.
    std::map<std::string, int> others;
    const bool ended = Eventually(kDeadline + 10s, [&] {
      std::erase_if(delivered, [&](const base::Uid& uid) {
        const auto job = databases.Find(uid);
        if (job.ok() && job->state() == Job::SUCCEEDED) return true;
        const bool over = job.ok() ? job->state() == Job::FAILED : absl::IsNotFound(job.status());
        if (over) ++others[job.ok() ? job->error().reason() : "unknown"];
        return over;
      });
      return delivered.empty();
    });
    qInfo("%d kills, %zu jobs, %zu results announced, each intact", kills, sent.size(), succeeded);
    for (const auto& [reason, count] : others) qInfo("%d jobs: %s", count, reason.c_str());
    QVERIFY2(ended, qPrintable(QString("%1 jobs have no end").arg(delivered.size())));
    QVERIFY(succeeded * 4 >= sent.size() * 3);
  }
};

}  // namespace onepiece::chaos

ONEPIECE_TEST(onepiece::chaos::DatabaseChaosTest)
#include "database_chaos_test.moc"
