// Says what a video of one coloured shape on a plain background shows.
#pragma once

#include <string>

#include "cluster/media/media.h"

namespace onepiece::e2e {

struct Verdict {
  std::string colour;  ///< "red", "green", "blue", "yellow", "white" or "purple".
  std::string motion;  ///< "right", "left", "up", "down", "bigger", "smaller" or "still".
};

/// Colour: nearest to the mean of the shape's pixels. Motion: displacement of the shape's centroid
/// from the first frame to the last, or else its change of area. REQUIRES: at least one frame.
Verdict Judge(const media::Frames& frames);

}  // namespace onepiece::e2e
