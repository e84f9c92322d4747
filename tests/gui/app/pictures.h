// Compares what is drawn now with pictures that somebody has looked at and approved
// (tests/gui/app/goldens).
//
// Threading: GUI thread only.
#pragma once

#include <QImage>
#include <QString>

namespace onepiece::testing {

/// Makes drawing the same everywhere: one font drawn in one way, UTC, one language, one pixel for
/// each point. Call it before the application is made.
void FixAppearance();

/// Compares a picture with NAME.png of `approved_folder`. Empty if they are alike. Otherwise says
/// what differs and where under `output_folder` the picture and a picture of the difference, in
/// red, were written. A pixel may differ a little (antialiasing), and one in two thousand by more.
/// With ONEPIECE_UPDATE_GOLDENS=1 the approved picture is replaced: look at it before it is
/// committed.
QString ComparePicture(const QImage& picture, const QString& name, const QString& approved_folder,
                       const QString& output_folder);

}  // namespace onepiece::testing
