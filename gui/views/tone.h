// The colours that say how things are, for any theme.
//
// Threading  Pure functions.
#pragma once

#include <QColor>
#include <QPalette>

#include "gui/models/format.h"

namespace onepiece::gui {

/// WCAG 2's ratio, 1 to 21; 4.5 is what text needs.
double ContrastRatio(const QColor& a, const QColor& b);

/// Text of this tone on the palette's Base or Window: Okabe and Ito's colours, told apart by people
/// who do not see some, made lighter or darker until the contrast is at least 4.5. Always goes
/// together with ToneGlyph or a word.
QColor ToneColor(StatusTone tone, const QPalette& palette);

/// A chart's line of this number, from 0 on: eight colours, then again. At least 3 of contrast to
/// the palette's Base, which is what graphics need.
QColor SeriesColor(int index, const QPalette& palette);

/// The background is dark.
bool IsDark(const QPalette& palette);

/// Things may move and fade: the settings do not ask for reduced motion. Of the whole program.
bool MotionWanted();
void SetMotionWanted(bool wanted);

/// The ground of the band that says "this is the past" or "production", and its text: the same in
/// every theme, for they warn.
struct BandColors {
  QColor ground, text;
};
BandColors PastBand();
BandColors ProductionBand();

}  // namespace onepiece::gui
