// The audit log as files: every entry once and in order, over restarts, crashes and gaps.
#include "nodemanager/service/audit_file.h"

#include <QtTest>
#include <fstream>
#include <nlohmann/json.hpp>

#include "nodemanager/state/state_machine.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

v1::AuditEntry EntryOf(std::uint64_t revision, const std::string& subject) {
  v1::AuditEntry entry;
  entry.set_revision(revision);
  entry.set_time_unix_ms(1'700'000'000'000);
  entry.set_action("end_node");
  entry.set_subject(subject);
  entry.set_caller("principal/alice");
  entry.set_caller_address("10.0.0.7:4711");
  entry.set_answer("OK");
  return entry;
}

/// Entries `from` to `to`, two of each revision.
AuditFile::Entries Audit(std::uint64_t from, std::uint64_t to) {
  AuditFile::Entries entries;
  for (std::uint64_t i = from; i <= to; ++i)
    entries.push_back(EntryOf(i / 2, "node-" + std::to_string(i)));
  return entries;
}

void Take(AuditFile& file, const AuditFile::Entries& audit) {
  QVERIFY(file.Append(file.NewOf(audit)).ok());
}

}  // namespace

class AuditFileTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() { dir_.emplace(); }

  void Entries_AreWrittenOnce_AlsoThoseOfOneCommand() {
    auto file = AuditFile::Open({.path = Path()});
    QVERIFY(file.ok());
    // The state is read between two entries of one revision's command at the worst.
    for (std::uint64_t to = 0; to <= 9; ++to) Take(*file, Audit(0, to));
    Take(*file, Audit(0, 9));
    QCOMPARE(Subjects(Path()), Names(0, 9));
    QCOMPARE(Lines(Path()).front(), nlohmann::json({{"revision", 0},
                                                    {"time_unix_ms", 1'700'000'000'000},
                                                    {"action", "end_node"},
                                                    {"subject", "node-0"},
                                                    {"detail", ""},
                                                    {"caller", "principal/alice"},
                                                    {"caller_address", "10.0.0.7:4711"},
                                                    {"answer", "OK"}}));
  }

  void ARestart_GoesOnWhereTheFileEnds() {
    for (std::uint64_t to = 3; to <= 30; to += 3) {
      auto file = AuditFile::Open({.path = Path()});
      QVERIFY(file.ok());
      Take(*file, Audit(0, to));
    }
    QCOMPARE(Subjects(Path()), Names(0, 30));
  }

  void AHalfLine_IsCutOff_AndComesAgain() {
    {
      auto file = AuditFile::Open({.path = Path()});
      Take(*file, Audit(0, 4));
    }
    const auto whole = std::filesystem::file_size(Path());
    for (const int missing : {1, 2, 40, 150}) {
      std::filesystem::resize_file(Path(), whole - static_cast<std::uintmax_t>(missing));
      auto file = AuditFile::Open({.path = Path()});
      QVERIFY(file.ok());
      Take(*file, Audit(0, 4));
      QCOMPARE(Subjects(Path()), Names(0, 4));
    }
  }

  void Files_AreRotatedAndBounded_AndARestartReadsTheOlderOne() {
    for (std::uint64_t to = 0; to < 100; ++to) {
      auto file = AuditFile::Open({.path = Path(), .file_bytes = 1000, .files = 3});
      Take(*file, Audit(0, to));
    }
    std::vector<std::string> kept;
    int files = 0;
    for (const char* name : {"audit.2.jsonl", "audit.1.jsonl", "audit.jsonl"}) {
      const std::string path = dir_->filePath(name).toStdString();
      QVERIFY(std::filesystem::file_size(path) <= 1000);
      for (const std::string& subject : Subjects(path)) kept.push_back(subject);
    }
    for (const auto& entry : std::filesystem::directory_iterator(dir_->path().toStdString()))
      files += entry.is_regular_file();
    QCOMPARE(files, 3);
    QVERIFY(kept.size() > 6);
    QCOMPARE(kept, Names(100 - kept.size(), 99));
  }

  void WhatPassedMeanwhile_IsSaidToBeMissing() {
    auto file = AuditFile::Open({.path = Path()});
    Take(*file, Audit(0, 9));
    const std::uint64_t first = 200;
    Take(*file, Audit(first, first + StateMachine::kMaxAudit - 1));
    const std::vector<nlohmann::json> lines = Lines(Path());
    QCOMPARE(lines.size(), 10 + 1 + StateMachine::kMaxAudit);
    QCOMPARE(
        lines[10],
        nlohmann::json({{"missing", true}, {"after_revision", 4}, {"before_revision", first / 2}}));
    // Nothing is missing when the state still has the file's last.
    Take(*file, Audit(first + 10, first + StateMachine::kMaxAudit + 9));
    QCOMPARE(Lines(Path()).size(), lines.size() + 10);
  }

  void AFolderThatIsNone_IsAnError() {
    std::ofstream(Path()) << "";  // A file is in the folder's place.
    const auto file = AuditFile::Open({.path = Path() + "/audit.jsonl"});
    QCOMPARE(base::GetReason(file.status()).reason, std::string("CANNOT_WRITE"));
  }

 private:
  [[nodiscard]] std::string Path() const { return dir_->filePath("audit.jsonl").toStdString(); }
  static std::vector<nlohmann::json> Lines(const std::string& path) {
    std::ifstream file(path);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  static std::vector<std::string> Subjects(const std::string& path) {
    std::vector<std::string> subjects;
    for (const nlohmann::json& line : Lines(path)) subjects.push_back(line.at("subject"));
    return subjects;
  }
  static std::vector<std::string> Names(std::uint64_t from, std::uint64_t to) {
    std::vector<std::string> names;
    for (std::uint64_t i = from; i <= to; ++i) names.push_back("node-" + std::to_string(i));
    return names;
  }

  std::optional<QTemporaryDir> dir_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::AuditFileTest)
#include "audit_file_test.moc"
