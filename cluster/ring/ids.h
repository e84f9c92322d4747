// The ring's ids. They are plain integers only in the words of the ring's memory and in what
// travels on the control plane.
#pragma once

#include "cluster/base/ids.h"

namespace onepiece::ring {

/// Names a producer over its reconnects and restarts; the key of deduplication.
using ProducerId = base::StrongId<struct ProducerIdTag>;
/// Which of its connections a producer means: each new one of the same ProducerId is greater.
using Incarnation = base::StrongId<struct IncarnationTag>;
/// Names one segment over the life of its consumer. A producer writes it into each slot, so what
/// was meant for another segment shows.
using Generation = base::StrongId<struct GenerationTag>;

}  // namespace onepiece::ring
