/* FDR-L with a fence that revokes one owner (verbs, ucx). Recovery may suspect a holder of the lock or of a reservation
 * at any moment, rightly or not. It cuts that owner off, breaks its lock and skips its hole; the process comes back as a
 * new owner and resends. The ring moves only when nobody knows the owner: at a torn slot. */
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
