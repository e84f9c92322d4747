// Compares each page with its approved picture in tests/gui/app/goldens.
#include <QApplication>
#include <QFile>
#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>

#include "gui/app/theme.h"
#include "gui/views/pages.h"
#include "tests/gui/app/pictures.h"
#include "tests/gui/app/window.h"
#include "tests/gui/models/scene.h"

namespace onepiece::gui {
namespace {

using testing::ComparePicture;
using testing::TestWindow;

constexpr auto kApproved = ONEPIECE_SOURCE_DIR "/tests/gui/app/goldens";
constexpr auto kOutput = ONEPIECE_BINARY_DIR "/tests/pictures";

}  // namespace

class GuiAppPictureTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Pages_LookAsApproved_data() {
    QTest::addColumn<QString>("page");
    QTest::addColumn<int>("theme");
    ShownCluster shown_cluster;
    for (const auto& page : MakePages(shown_cluster)) {
      for (const auto& [name, theme] :
           {std::pair("light", Theme::kLight), {"dark", Theme::kDark}}) {
        const QString row = page->id() + u'-' + QLatin1String(name);
        QTest::newRow(qPrintable(row)) << page->id() << static_cast<int>(theme);
      }
    }
  }
  void Pages_LookAsApproved() {
    QFETCH(QString, page);
    QFETCH(int, theme);
    Settings settings;
    settings.theme = static_cast<Theme>(theme);
    QApplication::setStyle(new ConsoleStyle);
    ApplyTheme(settings, false, 9);
    ShownCluster shown_cluster;
    testing::Scene scene;
    const auto tick = [&] { shown_cluster.Show(scene.Step(5), testing::LiveLink()); };
    const auto pages = MakePages(shown_cluster);
    const auto view = std::find_if(pages.begin(), pages.end(),
                                   [&](const auto& made) { return made->id() == page; });
    QVERIFY(view != pages.end());
    // The picture is of the page alone, so that another tab or menu does not change all pictures.
    (*view)->resize(1280, 800);
    tick();
    (*view)->show();
    for (int i = 0; i < 40; ++i) {  // Charts and rates need a few snapshots.
      tick();
      TestWindow::Settle();
    }
    const QString name = QLatin1String(QTest::currentDataTag());
    // Lists of jobs are arranged on another thread.
    QString difference;
    QTRY_VERIFY2((difference = ComparePicture((*view)->grab().toImage(), name, kApproved, kOutput))
                     .isEmpty(),
                 qPrintable(difference));
  }

  void Comparing_SeesWhatPeopleSee() {
    const QTemporaryDir folder;
    QImage picture(200, 100, QImage::Format_RGB32);
    picture.fill(Qt::white);
    QVERIFY(picture.save(folder.filePath(QStringLiteral("a.png"))));
    const auto compare = [&](const QImage& now) {
      return ComparePicture(now, QStringLiteral("a"), folder.path(), folder.path());
    };
    if (qEnvironmentVariableIsSet("ONEPIECE_UPDATE_GOLDENS")) QSKIP("pictures are approved now");
    QCOMPARE(compare(picture), QString());
    QImage slightly = picture;
    slightly.fill(qRgb(250, 240, 250));
    slightly.setPixel(3, 3, qRgb(0, 0, 0));
    QCOMPARE(compare(slightly), QString());
    QImage moved = picture;
    for (int x = 10; x < 40; ++x) moved.setPixel(x, 50, qRgb(0, 0, 0));
    QVERIFY2(compare(moved).contains(u"30 pixels differ, all in 10,50 to 39,50"),
             qPrintable(compare(moved)));
    QVERIFY(QFile::exists(folder.filePath(QStringLiteral("a.diff.png"))));
    QVERIFY(compare(picture.scaled(100, 50)).contains(u"100 by 50"));
    QVERIFY(ComparePicture(picture, QStringLiteral("b"), folder.path(), folder.path())
                .contains(u"no approved picture"));
  }
};

}  // namespace onepiece::gui

int main(int argc, char** argv) {
  onepiece::testing::FixAppearance();
  QApplication app(argc, argv);
  onepiece::gui::GuiAppPictureTest test;
  return QTest::qExec(&test, argc, argv);
}
#include "picture_test.moc"
