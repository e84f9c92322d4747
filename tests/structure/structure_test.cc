// The shape of the tree: which folder may include which, where vendor headers may appear, and which
// headers a folder keeps to itself.
#include <QDirIterator>
#include <QFile>
#include <QMap>
#include <QRegularExpression>
#include <QSet>
#include <QTemporaryDir>
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
      {"gloo/", {"stages/collectives", "tests/bench"}},
      {"libav", {"cluster/media"}},
      {"sqlite3.h", {"cluster/sqlite"}},
      {"openssl/", {"cluster/base", "cluster/identity", "cluster/proxy", "cluster/service"}},
      {"httplib.h", {"cluster/service"}},
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

QVector<Source> Sources(const QDir& top, const QStringList& roots) {
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

// Which folder keeps which of its headers to itself, as the CMakeLists.txt of the folders say.
struct HeaderSets {
  QSet<QString> public_headers;  // From the top of the tree.
  QStringList library_folders;   // Folders with a library, from the top of the tree.
};

// Reads what onepiece_library() and onepiece_qt_library() list; a list may come from a variable
// that the file sets.
HeaderSets ReadHeaderSets(const QDir& top) {
  static const QRegularExpression library("onepiece_(?:qt_)?library\\(([^)]*)\\)");
  static const QRegularExpression variable("set\\((\\w+)\\s([^)]*)\\)");
  static const QRegularExpression keyword("^[A-Z_]+$");
  HeaderSets sets;
  for (const QString& root : kProductRoots) {
    QDirIterator files(top.filePath(root), {"CMakeLists.txt"}, QDir::Files,
                       QDirIterator::Subdirectories);
    while (files.hasNext()) {
      QFile file(files.next());
      if (!file.open(QIODevice::ReadOnly)) continue;
      QString text = QString::fromUtf8(file.readAll());
      for (const auto& set : variable.globalMatch(text)) {
        text.replace("${" + set.captured(1) + "}", set.captured(2));
      }
      const QString folder = top.relativeFilePath(QFileInfo(file).path());
      for (const auto& call : library.globalMatch(text)) {
        sets.library_folders.append(folder);
        QString list;
        for (const QString& word : call.captured(1).simplified().split(' ')) {
          if (keyword.match(word).hasMatch()) {
            list = word;
          } else if (list == "PUBLIC_HEADERS") {
            sets.public_headers.insert(folder + '/' + word);
          }
        }
      }
    }
  }
  return sets;
}

// Whether `path` may include what `folder` keeps to itself: the folder, its tests, the benchmarks
// and the fuzz targets may.
bool IsInside(const QString& path, const QString& folder) {
  const QString top = folder.section('/', 0, 0);
  const bool named_alone = top == "cluster" || top == "stages";  // tests/ring tests cluster/ring.
  const QString tests = "tests/" + (named_alone ? folder.section('/', 1) : folder);
  const QStringList inside = {folder, tests, "tests/bench", "tests/fuzz"};
  return std::any_of(inside.begin(), inside.end(),
                     [&](const QString& place) { return path.startsWith(place + '/'); });
}

// The includes of private headers from outside their folder.
QStringList PrivateIncludes(const QDir& top) {
  const HeaderSets sets = ReadHeaderSets(top);
  QStringList broken;
  for (const Source& source : Sources(top, kProductRoots + QStringList{"tests"})) {
    for (const QString& line : source.lines) {
      const auto match = IncludeLine().match(line);
      if (!match.hasMatch() || sets.public_headers.contains(match.captured(1))) continue;
      for (const QString& folder : sets.library_folders) {
        if (match.captured(1).startsWith(folder + '/') && !IsInside(source.path, folder)) {
          broken << QString("%1 includes %2, which %3/CMakeLists.txt does not list as public")
                        .arg(source.path, match.captured(1), folder);
          break;
        }
      }
    }
  }
  return broken;
}

void WriteText(const QString& path, const char* text) {
  QVERIFY(QDir().mkpath(QFileInfo(path).path()));
  QFile file(path);
  QVERIFY(file.open(QIODevice::WriteOnly));
  QVERIFY(file.write(text) >= 0);
}

}  // namespace

class StructureTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    sources_ = Sources(QDir(ONEPIECE_SOURCE_DIR), kProductRoots);
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

  // LibTorch 2 brings headers of another fmt than spdlog is built with. base::LogWarning is for
  // these folders.
  void Spdlog_IsNotIncludedBesideLibTorch() {
    QStringList broken;
    for (const Source& source : sources_) {
      if (!VendorDoors()["ATen/"].contains(source.folder)) continue;
      for (const QString& line : source.lines) {
        if (IncludeLine().match(line).captured(1).startsWith("spdlog/")) broken << source.path;
      }
    }
    QVERIFY2(broken.isEmpty(), qPrintable(broken.join('\n')));
  }

  void PrivateHeaders_StayInTheirFolder() {
    const QDir top(ONEPIECE_SOURCE_DIR);
    QVERIFY(ReadHeaderSets(top).public_headers.size() > 50);
    const QStringList broken = PrivateIncludes(top);
    QVERIFY2(broken.isEmpty(), qPrintable(broken.join('\n')));
  }

  void PrivateHeaders_IncludedFromOutside_AreFound() {
    const QTemporaryDir copy;
    WriteText(copy.filePath("cluster/ring/CMakeLists.txt"),
              "set(more segment.h)\n"
              "onepiece_library(ring SOURCES ring.cc PUBLIC_HEADERS ring.h\n"
              "  PRIVATE_HEADERS ${more} DEPS onepiece::base)\n");
    WriteText(copy.filePath("cluster/ring/ring.cc"), "#include \"cluster/ring/segment.h\"\n");
    WriteText(copy.filePath("tests/ring/ring_test.cc"), "#include \"cluster/ring/segment.h\"\n");
    WriteText(copy.filePath("cluster/node/outbox.cc"), "#include \"cluster/ring/ring.h\"\n");
    QCOMPARE(PrivateIncludes(QDir(copy.path())), QStringList());

    WriteText(copy.filePath("cluster/node/inbox.cc"), "#include \"cluster/ring/segment.h\"\n");
    QCOMPARE(PrivateIncludes(QDir(copy.path())),
             QStringList{"cluster/node/inbox.cc includes cluster/ring/segment.h, which "
                         "cluster/ring/CMakeLists.txt does not list as public"});
  }

 private:
  QVector<Source> sources_;
};

}  // namespace onepiece

ONEPIECE_TEST(onepiece::StructureTest)
#include "structure_test.moc"
