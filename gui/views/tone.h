// The colours of tones and series, in any theme.
//
// Threading: MotionWanted() and SetMotionWanted() are for the GUI thread only. The rest are pure
// functions.
#pragma once

#include <QColor>
#include <QPalette>

#include "gui/models/format.h"

namespace onepiece::gui {

/// The contrast of two colours as WCAG 2 defines it, 1 to 21. Text needs 4.5.
double ContrastRatio(const QColor& a, const QColor& b);

/// The colour for text of this tone on the palette's Base or Window. The colours are Okabe and
/// Ito's, which colour-blind people can distinguish, made lighter or darker until the contrast is
/// at least 4.5. A ToneGlyph or a word always goes with it.
QColor ToneColor(StatusTone tone, const QPalette& palette);

/// The colour of a chart's line, counted from 0. There are eight colours, which then repeat. The
/// contrast to the palette's Base is at least 3, which graphics need.
QColor SeriesColor(int index, const QPalette& palette);

/// True if the background is dark.
bool IsDark(const QPalette& palette);

/// Whether things may move and fade, for the whole program: the settings do not ask for reduced
/// motion.
bool MotionWanted();
void SetMotionWanted(bool wanted);

/// The colours of the bands "this is the past" and "production". They are the same in every theme,
/// because they warn.
struct BandColors {
  QColor ground, text;
};
BandColors PastBand();
BandColors ProductionBand();

}  // namespace onepiece::gui
