// The colours and sizes of the whole program.
//
// Threading: GUI thread only.
#pragma once

#include <QPalette>
#include <QProxyStyle>

#include "gui/app/settings.h"

namespace onepiece::gui {

/// The palette of a theme. Each role in use has a contrast of at least 4.5 to its background.
QPalette PaletteOf(Theme theme, bool system_is_dark);
/// Whether the desktop prefers dark colours: what its portal says in "color-scheme", or else by the
/// brightness of `palette`.
///
/// Blocking: waits at most a quarter of a second for the portal.
bool SystemPrefersDark(const QPalette& palette);
/// Sets the application's palette, font and animations. `base_points` is the font size at 100 %.
void ApplyTheme(const Settings& settings, bool system_is_dark, double base_points);

/// The Fusion style with visible outlines. Fusion draws outlines in shades of the background, which
/// cannot be seen when it is black.
class ConsoleStyle : public QProxyStyle {
 public:
  ConsoleStyle();
  void drawPrimitive(PrimitiveElement element, const QStyleOption* option, QPainter* painter,
                     const QWidget* widget) const override;
};

}  // namespace onepiece::gui
