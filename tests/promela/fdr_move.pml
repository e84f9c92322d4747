/* FDR-L on shared memory, where a mapping cannot be revoked. Its death fences a process; asking again fences one whose
 * channel broke. Recovery may suspect everybody else at any moment, rightly or not: then the ring moves away, and late
 * writes land in the old generation's memory. */
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
#ifdef ONLY_DEATHS /* no wrong suspicions either */
#define MAY_SUSPECT(o) false
#else
#define MAY_SUSPECT(o) (!CAN_FENCE(o) && MAY_FAIL(o))
#endif
#include "producer.inc"
#include "consumer.inc"
#include "start.inc"
