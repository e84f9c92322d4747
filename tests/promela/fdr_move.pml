/* FDR-L on shared memory: a mapping cannot be revoked. A dead process is fenced by its death, one that broke its
 * channel and asks again by its asking; from everybody else, suspected at any moment, rightly or not, the ring moves
 * away, and late writes land in the old generation's memory. */
#ifndef PROCS
#define PROCS 2
#endif
#ifndef COUNT0
#define COUNT0 1
#endif
#define START_SEQ 3
#ifndef START_OFF
#define START_OFF 3 /* message 1 (two cells) needs a PAD, the others do not */
#endif
#ifndef ONLY_DEATHS
#define HANGS
#endif

#include "ring.inc"
#define CAN_FENCE(o) (fenced[o] || dead[o])
#ifdef ONLY_DEATHS /* and nobody is suspected wrongly */
#define MAY_SUSPECT(o) false
#else
#define MAY_SUSPECT(o) (!CAN_FENCE(o) && MAY_FAIL(o))
#endif
#include "producer.inc"
#include "consumer.inc"
#include "start.inc"
