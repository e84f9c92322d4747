// Pictures that somebody has looked at and approved (tests/gui/goldens), and what is drawn now.
//
// Threading  GUI thread only.
#pragma once

#include <QImage>
#include <QString>

namespace onepiece::testing {

/// Before the application is made: one font drawn in one way, UTC, one language, one pixel a point.
void FixAppearance();

/// Compares with NAME.png of `approved_folder`. Empty: alike. Else what differs, and where under
/// `output_folder` the picture, and a difference in red, were written. A pixel may be a little
/// other (antialiasing), and one in two thousand quite other. With ONEPIECE_UPDATE_GOLDENS=1 the
/// approved picture is replaced: look at it before it is committed.
QString ComparePicture(const QImage& picture, const QString& name, const QString& approved_folder,
                       const QString& output_folder);

}  // namespace onepiece::testing
