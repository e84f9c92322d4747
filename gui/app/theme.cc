#include "gui/app/theme.h"

#include <QApplication>
#include <QDBusConnection>
#include <QDBusMessage>
#include <QDBusVariant>
#include <QPainter>
#include <QStyleOption>
#include <QToolTip>

#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

struct Colors {
  QRgb window, base, alternate, text, button, mid, highlight, highlighted, link, placeholder;
};

constexpr Colors kLight = {0xffeff1f3, 0xffffffff, 0xfff5f7f9, 0xff1b1f24, 0xfff6f8fa,
                           0xffb4bcc6, 0xff0b5cad, 0xffffffff, 0xff0b5cad, 0xff5a6470};
constexpr Colors kDark = {0xff1f2328, 0xff15181c, 0xff1b1f24, 0xffe6e9ed, 0xff2b3138,
                          0xff4b545f, 0xff2f6fb5, 0xffffffff, 0xff7db7f5, 0xff9aa5b1};
constexpr Colors kContrast = {0xff000000, 0xff000000, 0xff101010, 0xffffffff, 0xff000000,
                              0xffffffff, 0xffffe600, 0xff000000, 0xff66ccff, 0xffd0d0d0};

QPalette Make(const Colors& c) {
  QPalette palette;
  const QColor window(c.window), base(c.base), text(c.text), button(c.button), mid(c.mid);
  palette.setColor(QPalette::Window, window);
  palette.setColor(QPalette::WindowText, text);
  palette.setColor(QPalette::Base, base);
  palette.setColor(QPalette::AlternateBase, QColor(c.alternate));
  palette.setColor(QPalette::Text, text);
  palette.setColor(QPalette::Button, button);
  palette.setColor(QPalette::ButtonText, text);
  palette.setColor(QPalette::BrightText, Qt::white);
  palette.setColor(QPalette::ToolTipBase, base);
  palette.setColor(QPalette::ToolTipText, text);
  palette.setColor(QPalette::Mid, mid);
  palette.setColor(QPalette::Midlight, mid.lighter(120));
  palette.setColor(QPalette::Dark, mid.darker(130));
  palette.setColor(QPalette::Light, button.lighter(110));
  palette.setColor(QPalette::Shadow, Qt::black);
  palette.setColor(QPalette::Highlight, QColor(c.highlight));
  palette.setColor(QPalette::HighlightedText, QColor(c.highlighted));
  palette.setColor(QPalette::Link, QColor(c.link));
  palette.setColor(QPalette::LinkVisited, QColor(c.link));
  palette.setColor(QPalette::PlaceholderText, QColor(c.placeholder));
  // A disabled control says why it is disabled, so its text must be readable.
  for (const auto role : {QPalette::Text, QPalette::WindowText, QPalette::ButtonText}) {
    palette.setColor(QPalette::Disabled, role, QColor(c.placeholder));
  }
  return palette;
}

}  // namespace

QPalette PaletteOf(Theme theme, bool system_is_dark) {
  switch (theme) {
    case Theme::kLight:
      return Make(kLight);
    case Theme::kDark:
      return Make(kDark);
    case Theme::kHighContrast:
      return Make(kContrast);
    case Theme::kSystem:
      break;
  }
  return Make(system_is_dark ? kDark : kLight);
}

bool SystemPrefersDark(const QPalette& palette) {
  const QDBusConnection bus = QDBusConnection::sessionBus();
  if (bus.isConnected()) {
    QDBusMessage ask = QDBusMessage::createMethodCall(
        QStringLiteral("org.freedesktop.portal.Desktop"),
        QStringLiteral("/org/freedesktop/portal/desktop"),
        QStringLiteral("org.freedesktop.portal.Settings"), QStringLiteral("Read"));
    ask << QStringLiteral("org.freedesktop.appearance") << QStringLiteral("color-scheme");
    constexpr int kWaitMs = 250;
    const QDBusMessage answer = bus.call(ask, QDBus::Block, kWaitMs);
    if (answer.type() == QDBusMessage::ReplyMessage && !answer.arguments().isEmpty()) {
      QVariant value = answer.arguments().constFirst();
      // A variant in a variant: the portal's first version wraps it twice.
      while (value.canConvert<QDBusVariant>()) value = value.value<QDBusVariant>().variant();
      const uint scheme = value.toUInt();  // 0: no preference, 1: dark, 2: light.
      if (scheme != 0) return scheme == 1;
    }
  }
  return IsDark(palette);
}

void ApplyTheme(const Settings& settings, bool system_is_dark, double base_points) {
  const QPalette palette = PaletteOf(settings.theme, system_is_dark);
  QApplication::setPalette(palette);
  QToolTip::setPalette(palette);
  QFont font = QApplication::font();
  font.setPointSizeF(base_points * settings.font_percent / 100.0);
  QApplication::setFont(font);
  SetMotionWanted(!settings.reduced_motion);
  QApplication::setEffectEnabled(Qt::UI_AnimateMenu, !settings.reduced_motion);
  QApplication::setEffectEnabled(Qt::UI_AnimateCombo, !settings.reduced_motion);
  QApplication::setEffectEnabled(Qt::UI_AnimateTooltip, !settings.reduced_motion);
}

ConsoleStyle::ConsoleStyle() : QProxyStyle(QStringLiteral("fusion")) {}

void ConsoleStyle::drawPrimitive(PrimitiveElement element, const QStyleOption* option,
                                 QPainter* painter, const QWidget* widget) const {
  QProxyStyle::drawPrimitive(element, option, painter, widget);
  const bool outlined = element == PE_FrameLineEdit || element == PE_PanelButtonCommand ||
                        element == PE_FrameTabWidget || element == PE_Frame ||
                        element == PE_FrameGroupBox;
  const QColor ground = option->palette.color(QPalette::Window);
  if (!outlined || ground != QColor(Qt::black)) return;
  const bool focus = (option->state & State_HasFocus) != 0;
  painter->save();
  painter->setBrush(Qt::NoBrush);
  painter->setPen(
      QPen(option->palette.color(focus ? QPalette::Highlight : QPalette::Mid), focus ? 2 : 1));
  painter->drawRect(option->rect.adjusted(0, 0, -1, -1));
  painter->restore();
}

}  // namespace onepiece::gui
