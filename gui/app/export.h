// Writes a page into a file: its table as CSV or JSON, its picture as PNG or SVG.
//
// Threading: GUI thread only.
#pragma once

#include <QAbstractItemModel>
#include <QByteArray>
#include <QWidget>

#include "absl/status/status.h"
#include "gui/views/view.h"

namespace onepiece::gui {

/// The table as CSV (RFC 4180) with a header line. Each cell is its kSortRole, so numbers are in
/// their unit; a number that is not known is empty. A text that a spreadsheet would take for a
/// formula gets an apostrophe in front.
QByteArray ToCsv(const QAbstractItemModel& model);
/// The table as a JSON array of objects with the column titles as keys. A number that is not known
/// is null.
QByteArray ToJson(const QAbstractItemModel& model);
/// The widget drawn as vectors, not as a picture of the screen.
QByteArray ToSvg(QWidget& widget);

/// Writes a page in the format that the file's ending names: .csv, .json, .png or .svg.
///
/// Errors: INVALID_ARGUMENT when the ending is another one, or the page has no table; UNAVAILABLE
/// when the file cannot be written.
absl::Status ExportView(View& view, const QString& path);

}  // namespace onepiece::gui
