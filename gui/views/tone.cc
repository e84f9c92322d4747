#include "gui/views/tone.h"

#include <QCoreApplication>
#include <QVariant>
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

namespace onepiece::gui {
namespace {

constexpr double kTextContrast = 4.5, kGraphicContrast = 3;

double Luminance(const QColor& color) {
  const auto linear = [](double channel) {
    return channel <= 0.04045 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) +
         0.0722 * linear(color.blueF());
}

QColor Mix(const QColor& a, const QColor& b, double share) {
  return QColor::fromRgbF(static_cast<float>(a.redF() * (1 - share) + b.redF() * share),
                          static_cast<float>(a.greenF() * (1 - share) + b.greenF() * share),
                          static_cast<float>(a.blueF() * (1 - share) + b.blueF() * share));
}

/// The colour, made lighter or darker until it has this contrast to all grounds. If no step is
/// enough, the colour of text.
QColor StandingOut(const QColor& color, double contrast, const QPalette& palette,
                   std::initializer_list<QPalette::ColorRole> grounds) {
  const QColor end = IsDark(palette) ? QColor(Qt::white) : QColor(Qt::black);
  for (int step = 0; step <= 20; ++step) {
    const QColor tried = Mix(color, end, step / 20.0);
    if (std::ranges::all_of(grounds, [&](QPalette::ColorRole ground) {
          return ContrastRatio(tried, palette.color(ground)) >= contrast;
        })) {
      return tried;
    }
  }
  return palette.color(QPalette::Text);
}

}  // namespace

double ContrastRatio(const QColor& a, const QColor& b) {
  const double first = Luminance(a), second = Luminance(b);
  return (std::max(first, second) + 0.05) / (std::min(first, second) + 0.05);
}

bool IsDark(const QPalette& palette) {
  return Luminance(palette.color(QPalette::Base)) < Luminance(palette.color(QPalette::Text));
}

QColor ToneColor(StatusTone tone, const QPalette& palette) {
  const QColor text = palette.color(QPalette::Text);
  QColor color = text;
  switch (tone) {
    case StatusTone::kNeutral:
      return text;
    case StatusTone::kGood:
      color = QColor(0x00, 0x9e, 0x73);
      break;
    case StatusTone::kBusy:
      color = QColor(0x00, 0x72, 0xb2);
      break;
    case StatusTone::kWarning:
      color = QColor(0xe6, 0x9f, 0x00);
      break;
    case StatusTone::kBad:
      color = QColor(0xd5, 0x5e, 0x00);
      break;
    case StatusTone::kUnknown:
      color = palette.color(QPalette::PlaceholderText);
      color.setAlpha(255);
      break;
  }
  return StandingOut(color, kTextContrast, palette, {QPalette::Base, QPalette::Window});
}

QColor SeriesColor(int index, const QPalette& palette) {
  static constexpr std::array<QRgb, 8> kOkabeIto = {0xff0072b2, 0xffe69f00, 0xff009e73, 0xffcc79a7,
                                                    0xff56b4e9, 0xffd55e00, 0xfff0e442, 0xff888888};
  return StandingOut(QColor(kOkabeIto[static_cast<std::size_t>(index) % kOkabeIto.size()]),
                     kGraphicContrast, palette, {QPalette::Base, QPalette::Window});
}

namespace {
constexpr const char* kStill = "reduced_motion";  // Property of the application.
}
bool MotionWanted() { return !qApp->property(kStill).toBool(); }

void SetMotionWanted(bool wanted) { qApp->setProperty(kStill, !wanted); }

BandColors PastBand() { return {QColor(0xff, 0xbf, 0x47), QColor(Qt::black)}; }

BandColors ProductionBand() { return {QColor(0xb0, 0x20, 0x30), QColor(Qt::white)}; }

}  // namespace onepiece::gui
