// Colours and sizes of the whole program.
//
// Threading  GUI thread only.
#pragma once

#include <QPalette>
#include <QProxyStyle>

#include "gui/app/settings.h"

namespace onepiece::gui {

/// Every role that is used has a contrast of at least 4.5 to its ground.
QPalette PaletteOf(Theme theme, bool system_is_dark);
/// What the desktop prefers: its portal's "color-scheme", else the brightness of `palette`. Waits
/// for the portal a quarter of a second at most.
bool SystemPrefersDark(const QPalette& palette);
/// Sets the application's palette and font. `base_points`: the font's size at 100 %.
void ApplyTheme(const Settings& settings, bool system_is_dark, double base_points);

/// Fusion, with outlines that can be seen where it draws them in shades of a black ground.
class ConsoleStyle : public QProxyStyle {
 public:
  ConsoleStyle();
  void drawPrimitive(PrimitiveElement element, const QStyleOption* option, QPainter* painter,
                     const QWidget* widget) const override;
};

}  // namespace onepiece::gui
