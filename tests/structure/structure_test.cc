// The shape of the tree: which folder may include which, where vendor headers may appear, and how
// long files get.
#include <QDirIterator>
#include <QFile>
#include <QMap>
#include <QRegularExpression>
#include <QSet>
#include <QtTest>

#include "tests/structure/rooms.h"
#include "tests/test_main.h"

namespace onepiece {
namespace {

// Vendor headers stay behind these doors.
const QMap<QString, QStringList>& VendorDoors() {
  static const QMap<QString, QStringList> doors = {
      {"ATen/", {"stages/tensor", "stages/model", "stages/wan", "stages/finetune"}},
      {"torch/", {"stages/tensor", "stages/model", "stages/wan", "stages/finetune"}},
      {"c10/", {"stages/tensor", "stages/model", "stages/wan", "stages/finetune"}},
      {"cuda", {"stages/device"}},
      {"infiniband/", {"cluster/fabric/verbs"}},
      {"ucp/", {"cluster/fabric/ucx"}},
      {"libav", {"cluster/media"}},
      {"sqlite3.h", {"cluster/sqlite"}},
      {"qcustomplot.h", {"gui/views"}},
      {"QtWidgets/", {"gui/views", "gui/app"}},
      {"sentencepiece_processor.h", {"stages/model"}},
  };
  return doors;
}

struct Source {
  QString path;    // From the top of the tree.
  QString folder;  // First two components of it.
  QStringList lines;
};

QString FolderOf(const QString& path) {
  if (path.startsWith("google/rpc/") || path.startsWith("onepiece/v1/") ||
      path.startsWith("proto/"))
    return "proto";
  return path.section('/', 0, 1);
}

QVector<Source> Sources(const QStringList& roots) {
  const QDir top(ONEPIECE_SOURCE_DIR);
  QVector<Source> sources;
  for (const QString& root : roots) {
    QDirIterator files(top.filePath(root), {"*.h", "*.cc", "*.cu"}, QDir::Files,
                       QDirIterator::Subdirectories);
    while (files.hasNext()) {
      QFile file(files.next());
      if (!file.open(QIODevice::ReadOnly)) continue;
      const QString path = top.relativeFilePath(file.fileName());
      sources.append({path, FolderOf(path), QString::fromUtf8(file.readAll()).split('\n')});
    }
  }
  return sources;
}

const QRegularExpression& IncludeLine() {
  static const QRegularExpression include("^\\s*#\\s*include\\s+[\"<]([^\">]+)[\">]");
  return include;
}

const QStringList kProductRoots = {"cluster", "nodemanager", "stages", "gui"};

}  // namespace

class StructureTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    sources_ = Sources(kProductRoots);
    QVERIFY(sources_.size() > 50);
  }

  void Folders_OnlyIncludeDownwards() {
    const QRegularExpression& include = IncludeLine();
    const auto& allowed = AllowedIncludes();
    QStringList broken;
    for (const Source& source : sources_) {
      if (!allowed.contains(source.folder)) {
        broken << source.path + ": folder is not in the table";
        continue;
      }
      for (const QString& line : source.lines) {
        const auto match = include.match(line);
        if (!match.hasMatch()) continue;
        const QString target = FolderOf(match.captured(1));
        const bool ours = target == "proto" || allowed.contains(target);
        if (ours && target != source.folder && !allowed[source.folder].contains(target)) {
          broken << source.path + " includes " + match.captured(1);
        }
      }
    }
    QVERIFY2(broken.isEmpty(), qPrintable(broken.join('\n')));
  }

  // What every node is made of knows nothing of what is built from it.
  void Cluster_StandsOnItselfAlone() {
    for (auto folder = AllowedIncludes().begin(); folder != AllowedIncludes().end(); ++folder) {
      if (!folder.key().startsWith("cluster/")) continue;
      for (const QString& need : folder.value())
        QVERIFY2(need == "proto" || need.startsWith("cluster/"), qPrintable(folder.key()));
    }
  }

  void Table_HasNoCycle() {
    // Takes away folders whose includes are all gone; what cannot be taken away is a cycle.
    QMap<QString, QStringList> left = AllowedIncludes();
    QSet<QString> done = {"proto"};
    bool moved = true;
    while (moved) {
      moved = false;
      for (const QString& folder : left.keys()) {
        const QStringList& needs = left[folder];
        if (!std::all_of(needs.begin(), needs.end(),
                         [&](const QString& need) { return done.contains(need); })) {
          continue;
        }
        done.insert(folder);
        left.remove(folder);
        moved = true;
      }
    }
    QVERIFY2(left.isEmpty(), qPrintable(QStringList(left.keys()).join(' ')));
  }

  void VendorHeaders_StayBehindTheirDoors() {
    const QRegularExpression& include = IncludeLine();
    QStringList broken;
    for (const Source& source : sources_) {
      for (const QString& line : source.lines) {
        const auto match = include.match(line);
        if (!match.hasMatch()) continue;
        for (auto door = VendorDoors().begin(); door != VendorDoors().end(); ++door) {
          if (!match.captured(1).startsWith(door.key())) continue;
          const auto& places = door.value();
          if (!std::any_of(places.begin(), places.end(), [&](const QString& place) {
                return source.path.startsWith(place + '/');
              })) {
            broken << source.path + " includes " + match.captured(1);
          }
        }
      }
    }
    QVERIFY2(broken.isEmpty(), qPrintable(broken.join('\n')));
  }

  void Files_StayShort() {
    QStringList broken;
    for (const Source& source : sources_ + Sources({"tests"})) {
      const int cap = source.path.endsWith(".h") ? 400 : 800;
      if (source.lines.size() - 1 > cap) {
        broken << QString("%1 has %2 lines, cap %3")
                      .arg(source.path)
                      .arg(source.lines.size() - 1)
                      .arg(cap);
      }
    }
    QVERIFY2(broken.isEmpty(), qPrintable(broken.join('\n')));
  }

  void Tests_DoNotSleep() {
    static const QRegularExpression sleep(
        "sleep_for|sleep_until|usleep\\(|QTest::qSleep|QTest::qWait\\(");
    QStringList broken;
    for (const Source& source : Sources({"tests"})) {
      // A benchmark offers its load at a pace, in real time.
      const bool benchmark = source.folder == "tests/bench" && !source.path.endsWith("_test.cc");
      if (source.folder == "tests/structure" || benchmark) continue;
      for (const QString& line : source.lines) {
        if (line.contains(sleep)) broken << source.path + ": " + line.trimmed();
      }
    }
    QVERIFY2(broken.isEmpty(), qPrintable(broken.join('\n')));
  }

 private:
  QVector<Source> sources_;
};

}  // namespace onepiece

ONEPIECE_TEST(onepiece::StructureTest)
#include "structure_test.moc"
