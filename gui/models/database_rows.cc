#include "gui/models/database_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "cluster/client/replicas.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// A database that is fuller than this will soon refuse or drop results.
constexpr double kNearlyFull = 0.9;
// A part that is older than this has stopped coming.
constexpr std::int64_t kOldMs = 6000;

QVariant Tone(StatusTone tone) { return static_cast<int>(tone); }

TableCell Count(std::optional<double> number, const QString& tip = {}) {
  if (!number.has_value()) return {Tr("N/A"), kUnknown, {}, tip};
  return {QString::number(*number, 'f', 0), *number, {}, tip};
}

double UsedShare(const v1::Database& database) {
  return database.budget_bytes() > 0
             ? static_cast<double>(database.result_bytes()) / database.budget_bytes()
             : kUnknown;
}

QString Bytes(std::int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

TableCell NotAvailable() { return {Tr("N/A"), kUnknown}; }

TableCell BytesOf(std::int64_t bytes, std::int64_t budget) {
  const double share =
      budget > 0 ? static_cast<double>(bytes) / static_cast<double>(budget) : kUnknown;
  return {Tr("%1 of %2").arg(Bytes(bytes), Bytes(budget)), static_cast<double>(bytes),
          share >= kNearlyFull ? Tone(StatusTone::kWarning) : QVariant(), FormatShare(share),
          std::isnan(share) ? QVariant() : QVariant(share)};
}

TableCell OnDisk(const DatabaseRow& row) {
  if (!row.database.has_value()) return NotAvailable();
  const v1::Database& database = *row.database;
  if (database.spill_budget_bytes() == 0)
    return {Tr("off"), 0.0, {}, Tr("when_full is reject: results that find no room are refused")};
  TableCell cell = BytesOf(database.spilled_bytes(), database.spill_budget_bytes());
  cell.tip = Tr("%1 results in files").arg(database.spilled_results());
  return cell;
}

TableCell Gone(const DatabaseRow& row) {
  if (!row.database.has_value()) return NotAvailable();
  const v1::Database& database = *row.database;
  return {QStringLiteral("%1 / %2 / %3")
              .arg(database.fetched())
              .arg(database.expired())
              .arg(database.deleted()),
          static_cast<double>(database.fetched() + database.expired() + database.deleted())};
}

TableCell Losses(const DatabaseRow& row) {
  if (!row.database.has_value()) return NotAvailable();
  const v1::Database& database = *row.database;
  QStringList words;
  if (database.evicted() > 0) words << Tr("%1 evicted").arg(database.evicted());
  if (database.refused() > 0) words << Tr("%1 refused").arg(database.refused());
  if (database.lost_on_restart() > 0) words << Tr("%1 lost").arg(database.lost_on_restart());
  const std::int64_t bad = database.refused() + database.lost_on_restart();
  return {words.isEmpty() ? Tr("none") : words.join(QStringLiteral(", ")),
          static_cast<double>(bad + database.evicted()),
          bad > 0 ? Tone(StatusTone::kWarning) : QVariant()};
}

std::int64_t Waiting(const v1::DatabasePeer& peer) {
  return peer.waiting_records() + peer.waiting_results();
}

QString PeerInWords(const v1::DatabasePeer& peer, std::int64_t now_ms) {
  QString text = SafeText(peer.node_id(), 60) + u' ';
  text += !peer.alive() ? Tr("is away")
          : peer.has_compared_time()
              ? Tr("alike at %1").arg(FormatTime(peer.compared_time().seconds() * 1000, now_ms))
              : Tr("not compared yet");
  if (Waiting(peer) == 0) return text;
  return text + Tr("; %1 records and %2 results wait for it")
                    .arg(peer.waiting_records())
                    .arg(peer.waiting_results());
}

// What keeps copies from being equal. The tip names each peer.
TableCell Peers(const DatabaseRow& row) {
  if (!row.database.has_value()) return NotAvailable();
  int alike = 0, away = 0, fresh = 0;
  std::int64_t waiting = 0;
  QStringList tips;
  for (const v1::DatabasePeer& peer : row.database->peers()) {
    (!peer.alive() ? away : peer.has_compared_time() ? alike : fresh)++;
    waiting += Waiting(peer);
    tips << PeerInWords(peer, row.as_of_ms);
  }
  QStringList words;
  if (alike > 0) words << Tr("%1 alike").arg(alike);
  if (fresh > 0) words << Tr("%1 not compared").arg(fresh);
  if (away > 0) words << Tr("%1 away").arg(away);
  if (waiting > 0) words << Tr("%1 wait").arg(waiting);
  tips.prepend(Tr("%1 copies of each job").arg(row.database->copies()));
  return {words.isEmpty() ? Tr("none") : words.join(QStringLiteral(", ")),
          static_cast<double>(waiting), away > 0 ? Tone(StatusTone::kWarning) : QVariant(),
          tips.join(u'\n')};
}

std::vector<client::ReplicaAnswer> Answers(const session::Replicas& replicas) {
  std::vector<client::ReplicaAnswer> answers;
  for (const session::ReplicaEntry& replica : replicas) {
    answers.push_back({replica.address, replica.name, absl::UnavailableError(replica.error)});
    if (replica.status.has_value()) answers.back().status = *replica.status;
  }
  return answers;
}

}  // namespace

QString WhyOld(std::int64_t as_of_ms, const std::string& error, std::int64_t now_ms) {
  if (error.empty() && (as_of_ms == 0 || now_ms - as_of_ms < kOldMs)) return {};
  const QString age =
      as_of_ms == 0
          ? Tr("Nothing was heard yet.")
          : Tr("As of %1 (%2).").arg(FormatTime(as_of_ms, now_ms), FormatAge(as_of_ms, now_ms));
  if (error.empty()) return age;
  return age + u' ' + Tr("Not newer because: %1").arg(SafeText(error, 300));
}

bool operator==(const DatabaseRow& a, const DatabaseRow& b) {
  const auto numbers = [](const DatabaseRow& row) {
    return row.database.has_value() ? std::optional(row.database->SerializeAsString())
                                    : std::nullopt;
  };
  return std::tie(a.node_id, a.workflow_set, a.state, a.tone, a.behind, a.age, a.error) ==
             std::tie(b.node_id, b.workflow_set, b.state, b.tone, b.behind, b.age, b.error) &&
         numbers(a) == numbers(b);
}

std::vector<DatabaseRow> DatabaseRows(const session::Snapshot& snapshot) {
  std::map<std::string, DatabaseRow> rows;
  if (snapshot.cluster.value != nullptr) {
    for (const v1::Node& node : snapshot.cluster.value->nodes()) {
      if (node.role() != v1::DATABASE) continue;
      DatabaseRow& row = rows[node.node_id()];
      row.node_id = node.node_id();
      row.workflow_set = node.workflow_set();
      const bool dead = node.state() == v1::Node::DEAD, ready = node.state() == v1::Node::READY;
      row.state = dead ? Tr("lost") : ready ? Tr("ready") : Tr("starting");
      row.tone = dead ? StatusTone::kBad : ready ? StatusTone::kGood : StatusTone::kBusy;
    }
  }
  if (snapshot.databases.value != nullptr) {
    for (const session::DatabaseEntry& entry : *snapshot.databases.value) {
      DatabaseRow& row = rows[entry.node_id];
      row.node_id = entry.node_id;
      row.as_of_ms = entry.as_of_ms;
      if (entry.as_of_ms != 0) row.database = entry.database;
      row.age = FormatAge(entry.as_of_ms, snapshot.at_ms);
      row.error = SafeText(entry.error, 300);
      if (entry.error.empty() || row.tone == StatusTone::kBad) continue;
      row.state = Tr("does not answer");
      row.tone = StatusTone::kWarning;
    }
  }
  std::map<std::string, std::int64_t> fullest;
  for (const auto& [id, row] : rows) {
    if (row.database.has_value()) {
      std::int64_t& most = fullest[row.workflow_set];
      most = std::max(most, row.database->records());
    }
  }
  std::vector<DatabaseRow> list;
  for (auto& [id, row] : rows) {
    if (row.state.isEmpty()) row.state = Tr("unknown");
    if (row.age.isEmpty()) row.age = Tr("never");
    if (row.database.has_value()) row.behind = fullest[row.workflow_set] - row.database->records();
    list.push_back(std::move(row));
  }
  std::ranges::stable_sort(list, {}, &DatabaseRow::workflow_set);
  return list;
}

Headline DatabasesInWords(const std::vector<DatabaseRow>& rows) {
  if (rows.empty()) return {Tr("No database is known."), StatusTone::kUnknown};
  int well = 0, full = 0;
  double bytes = 0, budget = 0;
  for (const DatabaseRow& row : rows) {
    well += row.tone == StatusTone::kGood && row.error.isEmpty() && row.database.has_value();
    if (!row.database.has_value()) continue;
    bytes += static_cast<double>(row.database->result_bytes());
    budget += static_cast<double>(row.database->budget_bytes());
    full += UsedShare(*row.database) >= kNearlyFull;
  }
  const int all = static_cast<int>(rows.size());
  QString text = Tr("%1 of %2 answer; %3 of results, of %4")
                     .arg(well)
                     .arg(all)
                     .arg(FormatBytes(bytes), FormatBytes(budget));
  if (full > 0) text += Tr("; %1 nearly full: the oldest results go").arg(full);
  const StatusTone tone = well == 0                ? StatusTone::kBad
                          : well < all || full > 0 ? StatusTone::kWarning
                                                   : StatusTone::kGood;
  return {text + u'.', tone};
}

std::vector<KeyedTable<DatabaseRow>::Column> DatabaseColumns() {
  const auto number = Qt::AlignRight | Qt::AlignVCenter;
  using Row = DatabaseRow;
  const auto of = [](const Row& row, double value) {
    return row.database.has_value() ? std::optional(value) : std::nullopt;
  };
  return {
      {Tr("Database"), Tr("Node id"),
       ShowCell([](const Row& row) { return TableCell{SafeText(row.node_id, 60)}; })},
      {Tr("State"), Tr("As the NodeManager sees it, and whether it answers the console"),
       ShowCell([](const Row& row) {
         return TableCell{ToneGlyph(row.tone) + u' ' + row.state, row.state, Tone(row.tone),
                          row.error};
       })},
      {Tr("Workflow set"), {}, ShowCell([](const Row& row) {
         return TableCell{SafeText(row.workflow_set, 40)};
       })},
      {Tr("Used"), Tr("Bytes of results, of the budget; above it the oldest go first"),
       ShowCell([](const Row& row) {
         if (!row.database.has_value()) return NotAvailable();
         TableCell cell = BytesOf(row.database->result_bytes(), row.database->budget_bytes());
         cell.tip += Tr("; %1 of memory is registered").arg(Bytes(row.database->memory_bytes()));
         return cell;
       })},
      {Tr("On disk"), Tr("Bytes of results that moved to files, of what may"), ShowCell(OnDisk)},
      {Tr("Results"), Tr("Jobs whose result bytes it holds"), ShowCell([of](const Row& row) {
         return Count(of(row, row.database.has_value() ? row.database->results() : 0));
       }),
       number},
      {Tr("Records"), Tr("Jobs that it knows, those that were deleted included for a while"),
       ShowCell([of](const Row& row) {
         return Count(of(row, row.database.has_value() ? row.database->records() : 0));
       }),
       number},
      {Tr("Behind"),
       Tr("Records that the fullest database of its workflow set has and it has not, at least; "
          "they copy from each other all the time"),
       ShowCell([](const Row& row) {
         return Count(row.behind.has_value() ? std::optional<double>(*row.behind) : std::nullopt);
       }),
       number},
      {Tr("Gone"),
       Tr("Results that were fetched / that expired / jobs that were deleted, and are still "
          "remembered as such"),
       ShowCell(Gone), number},
      {Tr("Losses"),
       Tr("Since its start, results that made room unacknowledged (evicted), that found none "
          "(refused), and that no database had after a restart (lost)"),
       ShowCell(Losses)},
      {Tr("Peers"),
       Tr("Other databases of its set: how many hold the same, are away, and what waits for them"),
       ShowCell(Peers)},
      {Tr("As of"), Tr("When it answered; asked every 2 s"), ShowCell([](const Row& row) {
         return TableCell{row.age,
                          row.as_of_ms == 0 ? QVariant(kUnknown) : QVariant(qint64(row.as_of_ms))};
       })},
      {Tr("Why not newer"), {}, ShowCell([](const Row& row) {
         return TableCell{row.error, {}, {}, row.error};
       })}};
}

bool operator==(const ReplicaRow& a, const ReplicaRow& b) {
  const auto numbers = [](const ReplicaRow& row) {
    const v1::ReplicaStatus& s =
        row.status.has_value() ? *row.status : v1::ReplicaStatus::default_instance();
    return std::tuple(row.status.has_value(), s.round(), s.chosen(), s.applied(), s.snapshot(),
                      s.first_slot(), s.lease(), s.state_hash(), s.version(), s.health());
  };
  return std::tie(a.name, a.address, a.role, a.tone, a.behind, a.detail) ==
             std::tie(b.name, b.address, b.role, b.tone, b.behind, b.detail) &&
         numbers(a) == numbers(b);
}

namespace {

QString HealthText(v1::ReplicaStatus::Health health) {
  switch (health) {
    case v1::ReplicaStatus::DISK_FAILED:
      return Tr("its disk refuses writes");
    case v1::ReplicaStatus::CORRUPT:
      return Tr("its state is corrupt; empty its data folder and start it again");
    case v1::ReplicaStatus::NEWER_VERSION:
      return Tr("its program is too old for the log");
    case v1::ReplicaStatus::CATCHING_UP:
      return Tr("catching up");
    default:
      return Tr("waiting");
  }
}

}  // namespace

std::vector<ReplicaRow> ReplicaRows(const session::Replicas& replicas) {
  std::uint64_t chosen = 0;
  for (const session::ReplicaEntry& replica : replicas) {
    if (replica.status.has_value()) chosen = std::max(chosen, replica.status->chosen());
  }
  std::vector<ReplicaRow> rows;
  for (const session::ReplicaEntry& replica : replicas) {
    ReplicaRow& row = rows.emplace_back();
    row.name = replica.name.empty() ? replica.address : replica.name;
    row.address = replica.address;
    row.status = replica.status;
    if (!replica.status.has_value()) {
      row.role = Tr("unreachable");
      row.tone = StatusTone::kBad;
      row.detail = SafeText(replica.error, 300);
      continue;
    }
    const v1::ReplicaStatus& status = *replica.status;
    row.role = QString::fromStdString(client::ReplicaRoleName(status));
    row.behind = chosen - std::min(chosen, status.applied());
    row.tone = status.role() == v1::ReplicaStatus::LEADER     ? StatusTone::kGood
               : status.role() == v1::ReplicaStatus::FOLLOWER ? StatusTone::kNeutral
                                                              : StatusTone::kBusy;
    if (status.health() == v1::ReplicaStatus::OK ||
        status.health() == v1::ReplicaStatus::HEALTH_UNSPECIFIED)
      continue;
    const bool broken = status.health() == v1::ReplicaStatus::DISK_FAILED ||
                        status.health() == v1::ReplicaStatus::CORRUPT;
    row.tone = broken ? StatusTone::kBad : StatusTone::kWarning;
    const QString health = HealthText(status.health());
    row.detail = health + QStringLiteral(": ") + SafeText(status.health_detail(), 200);
  }
  return rows;
}

std::vector<KeyedTable<ReplicaRow>::Column> ReplicaColumns() {
  const auto right = Qt::AlignRight | Qt::AlignVCenter;
  using Row = ReplicaRow;
  const auto number = [](const QString& title, const QString& tip, auto field) {
    return KeyedTable<Row>::Column{
        title, tip, ShowCell([field](const Row& row) {
          return Count(row.status.has_value()
                           ? std::optional(static_cast<double>(field(*row.status)))
                           : std::nullopt);
        }),
        Qt::AlignRight | Qt::AlignVCenter};
  };
  return {
      {Tr("Replica"), Tr("Name of its seat"),
       ShowCell([](const Row& row) { return TableCell{SafeText(row.name, 60)}; })},
      {Tr("Role"), {}, ShowCell([](const Row& row) {
         return TableCell{ToneGlyph(row.tone) + u' ' + row.role, row.role, Tone(row.tone),
                          row.detail};
       })},
      {Tr("Lease"), Tr("A leader whose lease covers reads now"), ShowCell([](const Row& row) {
         return TableCell{row.status.has_value() && row.status->lease() ? Tr("yes") : QString()};
       })},
      number(Tr("Round"), Tr("Ballot that it promised; every election raises it"),
             [](const v1::ReplicaStatus& s) { return s.round(); }),
      number(Tr("Chosen"), Tr("Last log entry that it knows to be chosen"),
             [](const v1::ReplicaStatus& s) { return s.chosen(); }),
      number(Tr("Applied"), Tr("Last log entry that its state contains"),
             [](const v1::ReplicaStatus& s) { return s.applied(); }),
      {Tr("Behind"), Tr("Entries that some replica knows to be chosen and it has not applied"),
       ShowCell([](const Row& row) {
         return Count(row.behind.has_value() ? std::optional(static_cast<double>(*row.behind))
                                             : std::nullopt);
       }),
       right},
      number(Tr("Snapshot"), Tr("Log entry up to which its disk has a snapshot"),
             [](const v1::ReplicaStatus& s) { return s.snapshot(); }),
      number(Tr("Log"), Tr("Entries that its disk holds after the snapshot"),
             [](const v1::ReplicaStatus& s) {
               return s.last_slot() >= s.first_slot() ? s.last_slot() - s.first_slot() + 1 : 0;
             }),
      {Tr("State"), Tr("CRC-32C of the state after “applied”: equal at equal entries"),
       ShowCell([](const Row& row) {
         if (!row.status.has_value()) return TableCell{Tr("N/A"), kUnknown};
         return TableCell{QStringLiteral("%1").arg(row.status->state_hash(), 8, 16, QChar(u'0'))};
       })},
      number(Tr("Version"), Tr("Highest command version that it can apply"),
             [](const v1::ReplicaStatus& s) { return s.version(); }),
      {Tr("Address"), {}, ShowCell([](const Row& row) {
         return TableCell{SafeText(row.address, 80)};
       })},
      {Tr("Why not"), Tr("Why it does not answer, or what keeps it from its work"),
       ShowCell([](const Row& row) {
         return TableCell{row.detail, {}, {}, row.detail};
       })}};
}

QString ReplicaWatch::InWords(std::size_t answering, std::size_t seats,
                              const v1::ReplicaStatus* leader, std::uint64_t slowest,
                              std::int64_t now_ms) const {
  QString text = Tr("%1 of %2 answer").arg(answering).arg(seats);
  if (answering * 2 <= seats) {
    text = Tr("QUORUM LOST: %1 of %2 answer, %3 are needed. Nothing can be changed or assigned; "
              "jobs that run go on")
               .arg(answering)
               .arg(seats)
               .arg(seats / 2 + 1);
  } else if (leader == nullptr) {
    text += Tr("; NOBODY LEADS: an election takes about a second");
  } else {
    const bool watched = since_ms_ > began_ms_;
    text += (watched ? Tr("; %1 leads since %2") : Tr("; %1 leads since %2 or before"))
                .arg(SafeText(leader->name(), 60), FormatTime(since_ms_, now_ms));
    text += slowest == 0 ? Tr("; nobody is behind")
                         : Tr("; the slowest is %1 entries behind").arg(slowest);
  }
  if (began_ms_ < now_ms) {
    text += Tr("; %1 elections seen since %2").arg(elections_).arg(FormatTime(began_ms_, now_ms));
  }
  return text;
}

ReplicaWatch::News ReplicaWatch::See(const session::Snapshot& snapshot) {
  News news;
  if (snapshot.replicas.value == nullptr) {
    news.headline = {snapshot.replicas.error.empty() ? Tr("No replica was heard of yet.")
                                                     : SafeText(snapshot.replicas.error, 300),
                     snapshot.replicas.error.empty() ? StatusTone::kUnknown : StatusTone::kBad};
    return news;
  }
  const session::Replicas& replicas = *snapshot.replicas.value;
  const auto answers = Answers(replicas);
  for (const std::string& line : client::AdviceFor(answers)) news.advice << SafeText(line, 400);
  const v1::ReplicaStatus* leader = client::FindLeader(answers);
  for (const auto& answer : answers) {
    if (answer.status.ok() && &*answer.status == leader) news.leader_address = answer.address;
  }
  std::size_t answering = 0, seats = 0;
  std::uint64_t slowest = 0;
  std::string cluster_id;
  for (const ReplicaRow& row : ReplicaRows(replicas)) {
    if (!row.status.has_value()) continue;
    ++answering;
    slowest = std::max(slowest, row.behind.value_or(0));
    if (cluster_id.empty()) cluster_id = row.status->cluster_id();
    // Replicas may disagree about the seats while one of them lags. The largest number counts.
    std::size_t occupied = 0;
    for (const v1::Seat& seat : row.status->members().seats()) occupied += seat.replica() != 0;
    seats = std::max(seats, occupied);
  }
  seats = std::max(seats, replicas.size());
  if (cluster_id != cluster_id_ || snapshot.at_ms < seen_ms_ || began_ms_ == 0) {
    *this = {};
    cluster_id_ = cluster_id;
    began_ms_ = snapshot.at_ms;
  }
  seen_ms_ = snapshot.at_ms;
  if (leader != nullptr) {
    news.leader = leader->name();
    if (leader->name() != leader_ || leader->round() != round_) {
      // The first leader that is seen is not an election.
      if (round_ != 0) ++elections_;
      since_ms_ = snapshot.at_ms;
    }
    leader_ = leader->name();
    round_ = leader->round();
  }
  const QString text = InWords(answering, seats, leader, slowest, snapshot.at_ms);
  const StatusTone tone = leader == nullptr || answering * 2 <= seats ? StatusTone::kBad
                          : news.advice.empty()                       ? StatusTone::kGood
                                                                      : StatusTone::kWarning;
  news.headline = {text + u'.', tone};
  return news;
}

}  // namespace onepiece::gui
