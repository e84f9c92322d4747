/* FDR-L with a fence that revokes one owner (verbs, ucx): whoever holds the lock or a reservation may be suspected at
 * any moment, rightly or not; it is cut off, its lock broken, its hole skipped, and it comes back as a new owner and
 * sends again. The ring moves only from what nobody can attribute: a torn slot. */
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

#include "ring.inc"
#define CAN_FENCE(o) (fenced[o] || cut[o] || (FIRST_ATTEMPT(o) && MAY_FAIL(o)))
#define MAY_SUSPECT(o) false
#include "producer.inc"
#include "consumer.inc"
#include "start.inc"
