// What a screen reader finds on the canvas: a list for each stage, a list item for each instance.
// QGraphicsView by itself exposes nothing.
//
// Threading  GUI thread only.
#pragma once

#include "gui/views/pipeline_canvas.h"

namespace onepiece::gui {

/// For all canvases of the program; once is enough.
void InstallPipelineAccessibility();
/// Tells screen readers that the current place is another one; that stages or instances are others.
void TellCurrent(PipelineCanvas& canvas);
void TellReordered(PipelineCanvas& canvas);

}  // namespace onepiece::gui
