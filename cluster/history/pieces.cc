#include "cluster/history/pieces.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/config/watched.h"
#include "cluster/history/conditions.h"
#include "onepiece/v1/recording.pb.h"

namespace onepiece::history {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr double kLargestExact = 9007199254740992.0;  // 2^53
constexpr std::size_t kMaxAudit = 200;

// Returns the key by which the elements of a repeated field are told apart. Empty means by their
// index.
std::string KeyOf(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const auto& type = *message.GetDescriptor();
  if (const FieldDescriptor* field = type.FindFieldByName("producer_id")) {
    return absl::StrFormat("%016x", reflection.GetUInt64(message, field));
  }
  std::string key;
  for (const char* name : {"workflow_set", "pool", "app_id", "stage", "device", "name"}) {
    const FieldDescriptor* field = type.FindFieldByName(name);
    if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) continue;
    if (!key.empty()) key += '/';
    key += reflection.GetString(message, field);
  }
  return key;
}

double GetNumber(const Message& m, const FieldDescriptor* f, int i) {
  const Reflection& r = *m.GetReflection();
  const bool many = f->is_repeated();
  const auto number = [](auto value) { return static_cast<double>(value); };
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return number(many ? r.GetRepeatedInt32(m, f, i) : r.GetInt32(m, f));
    case FieldDescriptor::CPPTYPE_INT64:
      return number(many ? r.GetRepeatedInt64(m, f, i) : r.GetInt64(m, f));
    case FieldDescriptor::CPPTYPE_UINT32:
      return number(many ? r.GetRepeatedUInt32(m, f, i) : r.GetUInt32(m, f));
    case FieldDescriptor::CPPTYPE_UINT64:
      return number(many ? r.GetRepeatedUInt64(m, f, i) : r.GetUInt64(m, f));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return number(many ? r.GetRepeatedFloat(m, f, i) : r.GetFloat(m, f));
    case FieldDescriptor::CPPTYPE_BOOL:
      return (many ? r.GetRepeatedBool(m, f, i) : r.GetBool(m, f)) ? 1 : 0;
    default:
      return many ? r.GetRepeatedDouble(m, f, i) : r.GetDouble(m, f);
  }
}

template <typename Integer>
Integer ToInteger(double value) {
  constexpr auto kLow = static_cast<double>(std::numeric_limits<Integer>::min());
  const auto kHigh =
      std::min(static_cast<double>(std::numeric_limits<Integer>::max()), kLargestExact);
  // A damaged file may hold any number, and a cast that is out of range is undefined.
  return static_cast<Integer>(std::clamp(value, std::max(kLow, -kLargestExact), kHigh));
}

void SetNumber(Message& m, const FieldDescriptor* f, int i, double v) {
  const Reflection& r = *m.GetReflection();
  const bool many = f->is_repeated();
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return many ? r.SetRepeatedInt32(&m, f, i, ToInteger<std::int32_t>(v))
                  : r.SetInt32(&m, f, ToInteger<std::int32_t>(v));
    case FieldDescriptor::CPPTYPE_INT64:
      return many ? r.SetRepeatedInt64(&m, f, i, ToInteger<std::int64_t>(v))
                  : r.SetInt64(&m, f, ToInteger<std::int64_t>(v));
    case FieldDescriptor::CPPTYPE_UINT32:
      return many ? r.SetRepeatedUInt32(&m, f, i, ToInteger<std::uint32_t>(v))
                  : r.SetUInt32(&m, f, ToInteger<std::uint32_t>(v));
    case FieldDescriptor::CPPTYPE_UINT64:
      return many ? r.SetRepeatedUInt64(&m, f, i, ToInteger<std::uint64_t>(v))
                  : r.SetUInt64(&m, f, ToInteger<std::uint64_t>(v));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return many ? r.SetRepeatedFloat(&m, f, i, static_cast<float>(v))
                  : r.SetFloat(&m, f, static_cast<float>(v));
    case FieldDescriptor::CPPTYPE_BOOL:
      return many ? r.SetRepeatedBool(&m, f, i, v != 0) : r.SetBool(&m, f, v != 0);
    default:
      return many ? r.SetRepeatedDouble(&m, f, i, v) : r.SetDouble(&m, f, v);
  }
}

using Visit = absl::FunctionRef<void(const std::string& name, Message& message,
                                     const FieldDescriptor* field, int index)>;

// Visits every number under `message`. The order and the names are the same whether the numbers are
// there or have been taken out, because PutIn() relies on it. `name` is restored.
void Walk(Message& message, std::string& name, Visit visit) {
  const Reflection& reflection = *message.GetReflection();
  const auto& type = *message.GetDescriptor();
  const std::size_t length = name.size();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_map() || (!is_message && !config::IsSeriesNumber(*field))) continue;
    if (!config::IsLeftOutOfSeriesNames(*field)) name.append("/").append(field->name());
    const std::size_t here = name.size();
    if (!field->is_repeated()) {
      if (!is_message) {
        visit(name, message, field, -1);
      } else if (reflection.HasField(message, field)) {
        Walk(*reflection.MutableMessage(&message, field), name, visit);
      }
    } else {
      std::unordered_map<std::string, int> seen;
      for (int at = 0; at < reflection.FieldSize(message, field); ++at) {
        std::string key;
        if (is_message) key = KeyOf(reflection.GetRepeatedMessage(message, field, at));
        if (key.empty()) key = std::to_string(at);
        name.append("/").append(key);
        if (const int again = ++seen[key]; again > 1)
          name.append("#").append(std::to_string(again));
        if (is_message) {
          Walk(*reflection.MutableRepeatedMessage(&message, field, at), name, visit);
        } else {
          visit(name, message, field, at);
        }
        name.resize(here);
      }
    }
    name.resize(length);
  }
}

void TakeOut(Message& message, std::string name, std::vector<Number>& numbers) {
  Walk(message, name,
       [&](const std::string& leaf, Message& m, const FieldDescriptor* field, int index) {
         if (numbers.size() >= kMaxNumbers) return;
         const bool many = field->is_repeated();
         if (!many && field->has_presence() && !m.GetReflection()->HasField(m, field)) return;
         const double value = GetNumber(m, field, index);
         const bool real = field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
                           field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT;
         if (std::isnan(value) || (!real && std::abs(value) >= kLargestExact)) return;
         numbers.push_back({leaf, value});
         // An element of a repeated field keeps its place, because Walk() names elements by their
         // index.
         if (many) {
           SetNumber(m, field, index, 0);
         } else {
           m.GetReflection()->ClearField(&m, field);
         }
       });
}

void PutIn(Message& message, std::string name, FindNumber find) {
  Walk(message, name,
       [&](const std::string& leaf, Message& m, const FieldDescriptor* field, int index) {
         const double value = find(leaf);
         if (!std::isnan(value)) SetNumber(m, field, index, value);
       });
}

// Calls `act` with the parts of a node that hold its numbers. The rest of the node is shape.
template <typename Do>
void ForNumbersOf(v1::Node& node, Do act) {
  const std::string name = "node/" + node.node_id();
  if (node.has_load()) act(*node.mutable_load(), name);
  if (node.has_last_report_time())
    act(*node.mutable_last_report_time(), name + "/last_report_time");
}

template <typename Do>
void ForNumbersOf(v1::Elasticity& elasticity, Do act) {
  for (v1::PoolStatus& pool : *elasticity.mutable_pools()) {
    act(pool, "pool/" + pool.workflow_set() + "/" + pool.pool());
  }
  for (v1::StageCost& cost : *elasticity.mutable_costs())
    act(cost, "cost/" + cost.app_id() + "/" + cost.stage());
}

// Fills Pieces with things and numbers.
class Taker {
 public:
  explicit Taker(Pieces& pieces) : pieces_(pieces) {}

  void Keep(const std::string& key, const Message& message) {
    pieces_.things.emplace(key, base::CanonicalBytes(message));
  }
  // Takes a message that has numbers everywhere.
  void Take(const std::string& key, Message& message) {
    // Of two messages with the same key only the first is kept. The numbers of the second would go
    // into the series of the first.
    if (pieces_.things.contains(key)) return;
    TakeOut(message, key, pieces_.numbers);
    Keep(key, message);
  }
  // Takes a message in which only some parts have numbers.
  template <typename Owner>
  void TakeSome(const std::string& key, Owner& message) {
    if (pieces_.things.contains(key)) return;
    ForNumbersOf(message, [this](Message& part, const std::string& name) {
      TakeOut(part, name, pieces_.numbers);
    });
    Keep(key, message);
  }

 private:
  Pieces& pieces_;
};

void TakeCluster(const v1::Cluster& cluster, Taker& taker) {
  v1::Cluster rest = cluster;
  rest.clear_nodes();
  rest.clear_workflows();
  for (const v1::Node& node : cluster.nodes()) {
    rest.add_nodes()->set_node_id(node.node_id());
    v1::Node copy = node;
    taker.TakeSome("node/" + node.node_id(), copy);
  }
  for (const v1::Workflow& workflow : cluster.workflows()) {
    rest.add_workflows()->set_app_id(workflow.app_id());
    taker.Keep("workflow/" + workflow.app_id(), workflow);
  }
  taker.Keep("cluster", rest);
}

void TakeRings(const session::Rings& rings, Taker& taker) {
  for (const session::RingEntry& ring : rings) {
    v1::RecordedRing recorded;
    recorded.set_node_id(ring.node_id);
    recorded.set_incarnation(ring.incarnation);
    *recorded.mutable_health() = ring.health;
    recorded.set_as_of_ms(ring.as_of_ms);
    recorded.set_error(ring.error);
    if (ring.rates) {
      auto& rates = *recorded.mutable_rates();
      rates.set_messages_per_s(ring.rates->messages_per_s);
      rates.set_bytes_per_s(ring.rates->bytes_per_s);
      rates.set_stalls_per_s(ring.rates->stalls_per_s);
      rates.set_corrupted_per_s(ring.rates->corrupted_per_s);
      rates.set_duplicates_per_s(ring.rates->duplicates_per_s);
    }
    taker.Take("ring/" + ring.node_id, recorded);
  }
}

void TakeServers(const session::Snapshot& snapshot, Taker& taker) {
  if (snapshot.databases.value) {
    for (const session::DatabaseEntry& database : *snapshot.databases.value) {
      v1::RecordedDatabase recorded;
      recorded.set_node_id(database.node_id);
      *recorded.mutable_database() = database.database;
      recorded.set_as_of_ms(database.as_of_ms);
      recorded.set_error(database.error);
      taker.Take("database/" + database.node_id, recorded);
    }
  }
  if (snapshot.replicas.value) {
    for (const session::ReplicaEntry& replica : *snapshot.replicas.value) {
      v1::RecordedReplica recorded;
      recorded.set_name(replica.name);
      recorded.set_address(replica.address);
      if (replica.status) *recorded.mutable_status() = *replica.status;
      recorded.set_error(replica.error);
      taker.Take("replica/" + replica.name, recorded);
    }
  }
}

void TakePlans(const session::Snapshot& snapshot, Taker& taker) {
  if (snapshot.elasticity.value) {
    v1::Elasticity copy = *snapshot.elasticity.value;
    taker.TakeSome("elasticity", copy);
  }
  if (snapshot.plans.value) {
    v1::ListPlansResponse order = *snapshot.plans.value;
    order.clear_plans();
    for (const v1::Plan& plan : snapshot.plans.value->plans()) {
      order.add_plans()->set_plan_id(plan.plan_id());
      taker.Keep("plan/" + plan.plan_id(), plan);
    }
    taker.Keep("plans", order);
  }
  if (snapshot.audit.value) {
    // The keys sort by time. A second number keeps the order of entries with the same revision.
    const session::Audit& audit = *snapshot.audit.value;
    std::uint64_t revision = 0;
    int place = 0;
    for (std::size_t i = std::min(audit.size(), kMaxAudit); i-- > 0;) {
      place = audit[i].revision() == revision ? place + 1 : 0;
      revision = audit[i].revision();
      taker.Keep(absl::StrFormat("audit/%020d/%04d", revision, place), audit[i]);
    }
  }
}

void TakeAlerts(const session::Alerts& alerts, Taker& taker) {
  for (const session::Alert& alert : alerts) {
    v1::RecordedAlert recorded;
    recorded.set_id(alert.id);
    recorded.set_rule(alert.rule);
    recorded.set_entity(alert.entity);
    recorded.set_state(static_cast<int>(alert.state));
    recorded.set_severity(static_cast<int>(alert.severity));
    recorded.set_since_ms(alert.since_ms);
    recorded.set_text(alert.text);
    if (alert.value) recorded.set_value(*alert.value);
    if (alert.threshold) recorded.set_threshold(*alert.threshold);
    recorded.set_acknowledged_by(alert.acknowledged_by);
    recorded.set_silenced_until_ms(alert.silenced_until_ms);
    recorded.set_silence_reason(alert.silence_reason);
    taker.Keep("alert/" + alert.id, recorded);
  }
}

// Names the parts in one place, for taking apart and putting together.
template <typename SomeSnapshot, typename Do>
void ForEachPart(SomeSnapshot& snapshot, Do act) {
  act("cluster", snapshot.cluster);
  act("elasticity", snapshot.elasticity);
  act("rings", snapshot.rings);
  act("jobs", snapshot.jobs);
  act("databases", snapshot.databases);
  act("replicas", snapshot.replicas);
  act("audit", snapshot.audit);
  act("plans", snapshot.plans);
  act("alerts", snapshot.alerts);
}

void CountJobs(const session::JobList& list, std::vector<Number>& numbers) {
  double queued = 0, running = 0;
  for (const session::JobEntry& entry : list.jobs) {
    queued += entry.job->state() == v1::Job::QUEUED ? 1 : 0;
    running += entry.job->state() == v1::Job::RUNNING ? 1 : 0;
  }
  numbers.push_back({"jobs/queued", queued});
  numbers.push_back({"jobs/running", running});
}

template <typename T>
bool Parse(std::string_view bytes, T& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// Calls `act` with every thing of one kind, sorted by key.
template <typename T, typename Do>
void ForEachOf(const Things& things, const std::string& kind, Do act) {
  for (auto thing = things.lower_bound(kind);
       thing != things.end() && absl::StartsWith(thing->first, kind); ++thing) {
    T message;
    if (Parse(thing->second, message)) act(message);
  }
}

template <typename T>
std::optional<T> Find(const Things& things, const std::string& key) {
  const auto thing = things.find(key);
  T message;
  if (thing == things.end() || !Parse(thing->second, message)) return std::nullopt;
  return message;
}

std::shared_ptr<const v1::Cluster> PutCluster(const Things& things, FindNumber find) {
  const auto put = [&](Message& part, const std::string& name) { PutIn(part, name, find); };
  auto cluster = std::make_shared<v1::Cluster>();
  if (auto found = Find<v1::Cluster>(things, "cluster")) *cluster = *std::move(found);
  for (v1::Node& node : *cluster->mutable_nodes()) {
    auto found = Find<v1::Node>(things, "node/" + node.node_id());
    if (!found) continue;
    ForNumbersOf(*found, put);
    node = *std::move(found);
  }
  for (v1::Workflow& workflow : *cluster->mutable_workflows()) {
    if (auto found = Find<v1::Workflow>(things, "workflow/" + workflow.app_id()))
      workflow = *std::move(found);
  }
  return cluster;
}

std::shared_ptr<const session::Rings> PutRings(const Things& things, FindNumber find) {
  auto rings = std::make_shared<session::Rings>();
  ForEachOf<v1::RecordedRing>(things, "ring/", [&](v1::RecordedRing& recorded) {
    PutIn(recorded, "ring/" + recorded.node_id(), find);
    session::RingEntry& ring = rings->emplace_back();
    ring.node_id = recorded.node_id();
    ring.incarnation = recorded.incarnation();
    ring.health = recorded.health();
    ring.as_of_ms = recorded.as_of_ms();
    ring.error = recorded.error();
    if (recorded.has_rates()) {
      const auto& rates = recorded.rates();
      ring.rates =
          session::RingRates{rates.messages_per_s(), rates.bytes_per_s(), rates.stalls_per_s(),
                             rates.corrupted_per_s(), rates.duplicates_per_s()};
    }
  });
  return rings;
}

std::shared_ptr<const session::Databases> PutDatabases(const Things& things, FindNumber find) {
  auto databases = std::make_shared<session::Databases>();
  ForEachOf<v1::RecordedDatabase>(things, "database/", [&](v1::RecordedDatabase& recorded) {
    PutIn(recorded, "database/" + recorded.node_id(), find);
    databases->push_back(
        {recorded.node_id(), recorded.database(), recorded.as_of_ms(), recorded.error()});
  });
  return databases;
}

std::shared_ptr<const session::Replicas> PutReplicas(const Things& things, FindNumber find) {
  auto replicas = std::make_shared<session::Replicas>();
  ForEachOf<v1::RecordedReplica>(things, "replica/", [&](v1::RecordedReplica& recorded) {
    PutIn(recorded, "replica/" + recorded.name(), find);
    session::ReplicaEntry& replica = replicas->emplace_back();
    replica.name = recorded.name();
    replica.address = recorded.address();
    if (recorded.has_status()) replica.status = recorded.status();
    replica.error = recorded.error();
  });
  return replicas;
}

std::shared_ptr<const v1::Elasticity> PutElasticity(const Things& things, FindNumber find) {
  auto elasticity = std::make_shared<v1::Elasticity>();
  if (auto found = Find<v1::Elasticity>(things, "elasticity")) *elasticity = *std::move(found);
  ForNumbersOf(*elasticity,
               [&](Message& part, const std::string& name) { PutIn(part, name, find); });
  return elasticity;
}

std::shared_ptr<const v1::ListPlansResponse> PutPlans(const Things& things) {
  auto plans = std::make_shared<v1::ListPlansResponse>();
  if (auto found = Find<v1::ListPlansResponse>(things, "plans")) *plans = *std::move(found);
  for (v1::Plan& plan : *plans->mutable_plans()) {
    if (auto found = Find<v1::Plan>(things, "plan/" + plan.plan_id())) plan = *std::move(found);
  }
  return plans;
}

std::shared_ptr<const session::Audit> PutAudit(const Things& things) {
  auto audit = std::make_shared<session::Audit>();
  ForEachOf<v1::AuditEntry>(things, "audit/",
                            [&](const v1::AuditEntry& entry) { audit->push_back(entry); });
  std::ranges::reverse(*audit);
  return audit;
}

std::shared_ptr<const session::Alerts> PutAlerts(const Things& things) {
  auto alerts = std::make_shared<session::Alerts>();
  ForEachOf<v1::RecordedAlert>(things, "alert/", [&](const v1::RecordedAlert& recorded) {
    session::Alert& alert = alerts->emplace_back();
    alert.id = recorded.id();
    alert.rule = recorded.rule();
    alert.entity = recorded.entity();
    // An unknown state of a newer program shows as an error, and an unknown severity as the worst.
    alert.state = static_cast<session::Alert::State>(
        std::clamp(recorded.state(), 0, static_cast<int>(session::Alert::State::kError)));
    alert.severity = static_cast<session::Alert::Severity>(
        std::clamp(recorded.severity(), 0, static_cast<int>(session::Alert::Severity::kCritical)));
    alert.since_ms = recorded.since_ms();
    alert.text = recorded.text();
    if (recorded.has_value()) alert.value = recorded.value();
    if (recorded.has_threshold()) alert.threshold = recorded.threshold();
    alert.acknowledged_by = recorded.acknowledged_by();
    alert.silenced_until_ms = recorded.silenced_until_ms();
    alert.silence_reason = recorded.silence_reason();
  });
  std::ranges::sort(*alerts, IsWorse);
  return alerts;
}

}  // namespace

Pieces TakeApart(const session::Snapshot& snapshot, bool jobs_left_out) {
  Pieces pieces;
  Taker taker(pieces);
  v1::RecordedParts parts;
  ForEachPart(snapshot, [&](const char* name, const auto& part) {
    if (!part.value && part.error.empty() && part.as_of_ms == 0) return;
    v1::RecordedParts::Part& recorded = *parts.add_parts();
    recorded.set_name(name);
    recorded.set_as_of_ms(part.as_of_ms);
    recorded.set_error(part.error);
    recorded.set_heard(part.value != nullptr);
  });
  const bool truncated = snapshot.jobs.value && snapshot.jobs.value->truncated;
  parts.set_jobs_truncated(truncated || jobs_left_out);
  TakeOut(parts, "part", pieces.numbers);
  taker.Keep("parts", parts);
  if (snapshot.jobs.value) CountJobs(*snapshot.jobs.value, pieces.numbers);
  if (snapshot.cluster.value) TakeCluster(*snapshot.cluster.value, taker);
  if (snapshot.rings.value) TakeRings(*snapshot.rings.value, taker);
  TakeServers(snapshot, taker);
  TakePlans(snapshot, taker);
  if (snapshot.alerts.value) TakeAlerts(*snapshot.alerts.value, taker);
  return pieces;
}

session::Snapshot PutTogether(const Things& things, std::vector<session::JobEntry> jobs,
                              FindNumber find) {
  session::Snapshot snapshot;
  v1::RecordedParts parts = Find<v1::RecordedParts>(things, "parts").value_or(v1::RecordedParts());
  PutIn(parts, "part", find);
  const auto list = std::make_shared<session::JobList>();
  list->truncated = parts.jobs_truncated();
  list->jobs = std::move(jobs);
  std::ranges::sort(list->jobs, [](const session::JobEntry& a, const session::JobEntry& b) {
    const auto key = [](const v1::Job& job) {
      return std::make_tuple(job.create_time().seconds(), job.create_time().nanos(),
                             std::string_view(job.uid()));
    };
    return key(*a.job) > key(*b.job);
  });
  snapshot.cluster.value = PutCluster(things, find);
  snapshot.elasticity.value = PutElasticity(things, find);
  snapshot.rings.value = PutRings(things, find);
  snapshot.jobs.value = list;
  snapshot.databases.value = PutDatabases(things, find);
  snapshot.replicas.value = PutReplicas(things, find);
  snapshot.audit.value = PutAudit(things);
  snapshot.plans.value = PutPlans(things);
  snapshot.alerts.value = PutAlerts(things);
  ForEachPart(snapshot, [&](const std::string& name, auto& part) {
    const auto found = std::ranges::find(parts.parts(), name, &v1::RecordedParts::Part::name);
    if (found == parts.parts().end() || !found->heard()) part.value = nullptr;
    if (found == parts.parts().end()) return;
    part.as_of_ms = found->as_of_ms();
    part.error = found->error();
  });
  return snapshot;
}

JobsToRecord ChooseJobs(const session::JobList& list) {
  JobsToRecord chosen;
  std::size_t active = 0, ended = 0;
  for (const session::JobEntry& entry : list.jobs) {
    const bool has_ended = client::IsTerminal(entry.job->state());
    if (has_ended ? ended < kMaxEndedJobs : active < kMaxActiveJobs) {
      chosen.jobs.push_back(&entry);
      ++(has_ended ? ended : active);
    } else {
      chosen.left_out = true;
    }
  }
  return chosen;
}

std::string JobBytes(const session::JobEntry& entry) {
  v1::RecordedJob recorded;
  *recorded.mutable_job() = *entry.job;
  recorded.set_reconciling(entry.certainty != session::Certainty::kKnown);
  return base::CanonicalBytes(recorded);
}

std::optional<session::JobEntry> ParseJob(std::string_view bytes) {
  v1::RecordedJob recorded;
  if (!Parse(bytes, recorded)) return std::nullopt;
  session::JobEntry entry;
  entry.certainty =
      recorded.reconciling() ? session::Certainty::kReconciling : session::Certainty::kKnown;
  entry.job = std::make_shared<v1::Job>(std::move(*recorded.mutable_job()));
  return entry;
}

std::string UnitOf(std::string_view name) {
  constexpr std::array<std::pair<const char*, const char*>, 11> kUnits = {
      {{"utilization", "ratio"},
       {"_active", "ratio"},
       {"bytes_per_s", "bytes/s"},
       {"_per_s", "1/s"},
       {"bytes", "bytes"},
       {"_ms", "ms"},
       {"_s2", "s2"},
       {"_s", "s"},
       {"_c", "celsius"},
       {"_w", "watts"},
       {"seconds", "s"}}};
  // The first match wins, so a longer suffix stands before its own ending.
  for (const auto& [suffix, unit] : kUnits) {
    if (name.ends_with(suffix)) return unit;
  }
  return "1";
}

}  // namespace onepiece::history
