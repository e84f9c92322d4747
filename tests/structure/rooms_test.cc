// Tests the newcomer's map: docs/architecture.md draws the floors and the arrows of the table in
// rooms.h, and the README of each top folder names each of its rooms.
//
// The drawing lies between two marks of the page. This command draws it again after a change of the
// table:
//   ONEPIECE_UPDATE_GOLDENS=1 build/release/tests/structure_tests rooms_test
#include "tests/structure/rooms.h"

#include <QFile>
#include <QSet>
#include <QtTest>

#include "tests/test_main.h"

namespace onepiece {
namespace {

const QString kPage = ONEPIECE_SOURCE_DIR "/docs/architecture.md";
const QString kBegin = "<!-- rooms: begin -->\n";
const QString kEnd = "<!-- rooms: end -->";

QString Contents(const QString& path) {
  QFile file(path);
  return file.open(QIODevice::ReadOnly) ? QString::fromUtf8(file.readAll()) : QString();
}

/// Returns the floor of a room: one above the highest room that it may include. A room that may
/// include nothing of ours is on the ground floor, 0. The table has no cycle: structure_test checks
/// that.
int Floor(const QString& room) {
  int floor = 0;
  for (const QString& need : AllowedIncludes().value(room)) floor = qMax(floor, Floor(need) + 1);
  return floor;
}

/// Says whether `room` may include `need` through other rooms.
bool Reaches(const QString& room, const QString& need) {
  const QStringList needs = AllowedIncludes().value(room);
  return std::any_of(needs.begin(), needs.end(), [&](const QString& between) {
    return between == need || Reaches(between, need);
  });
}

/// Returns the arrows of a room without those that follow from others (the transitive reduction).
QStringList Arrows(const QString& room) {
  QStringList arrows;
  const QStringList needs = AllowedIncludes().value(room);
  for (const QString& need : needs) {
    const bool follows = std::any_of(needs.begin(), needs.end(), [&](const QString& between) {
      return between != need && Reaches(between, need);
    });
    if (!follows) arrows << need;
  }
  arrows.sort();
  return arrows;
}

/// Returns the room's name in the graph, where a name has no slash.
QString NodeId(const QString& room) { return QString(room).replace('/', '_'); }

QStringList Rooms() { return QStringList{"proto"} + AllowedIncludes().keys(); }

QString Floors() {
  QMap<int, QStringList> floors;
  for (const QString& room : Rooms()) floors[-Floor(room)] << '`' + room + '`';
  QString text = "| floor | rooms |\n| --- | --- |\n";
  for (auto floor = floors.begin(); floor != floors.end(); ++floor)
    text += QString("| %1 | %2 |\n").arg(-floor.key()).arg(floor.value().join(' '));
  return text;
}

QString Graph() {
  QMap<QString, QStringList> houses;  // The rooms of each top folder.
  for (const QString& room : Rooms()) houses[room.section('/', 0, 0)] << room;
  QString text = "```mermaid\ngraph TD\n";
  for (auto house = houses.begin(); house != houses.end(); ++house) {
    if (house.key() == "proto") continue;
    text += "  subgraph " + house.key() + '\n';
    for (const QString& room : house.value())
      text += QString("    %1[%2]\n").arg(NodeId(room), room.section('/', 1));
    text += "  end\n";
  }
  for (const QString& room : Rooms()) {
    QStringList arrows;
    for (const QString& need : Arrows(room)) arrows << NodeId(need);
    if (!arrows.isEmpty()) text += QString("  %1 --> %2\n").arg(NodeId(room), arrows.join(" & "));
  }
  return text + "```\n";
}

}  // namespace

class RoomsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Architecture_DrawsTheTable() {
    const QString page = Contents(kPage);
    const qsizetype begin = page.indexOf(kBegin);
    const qsizetype end = page.indexOf(kEnd);
    QVERIFY2(begin >= 0 && end > begin, "docs/architecture.md has lost the marks of its drawing");
    const qsizetype from = begin + kBegin.size();
    const QString drawing = Floors() + '\n' + Graph();
    if (qEnvironmentVariableIntValue("ONEPIECE_UPDATE_GOLDENS") == 1) {
      QFile file(kPage);
      QVERIFY(file.open(QIODevice::WriteOnly));
      file.write((page.left(from) + drawing + page.mid(end)).toUtf8());
      QSKIP("docs/architecture.md is drawn again");
    }
    QVERIFY2(page.mid(from, end - from) == drawing,
             "docs/architecture.md does not draw the table of tests/structure/rooms.h. "
             "ONEPIECE_UPDATE_GOLDENS=1 structure_tests rooms_test draws it again.");
  }

  void Readmes_NameEachRoom() {
    QStringList missing;
    for (const QString& room : AllowedIncludes().keys()) {
      const QString readme = room.section('/', 0, 0) + "/README.md";
      const QString row = "\n| `" + room.section('/', 1) + "` |";
      if (!Contents(ONEPIECE_SOURCE_DIR "/" + readme).contains(row))
        missing << readme + " says nothing of " + room;
    }
    QVERIFY2(missing.isEmpty(), qPrintable(missing.join('\n')));
  }
};

}  // namespace onepiece

ONEPIECE_TEST(onepiece::RoomsTest)
#include "rooms_test.moc"
