/* FDR-L when the consumer dies, at any moment, and starts again: a new incarnation with fresh memory. What had not
 * been handed on is lost with it; nothing that was on its way to the old one is accepted by the new one; who learns of
 * it sends again, and each consumer by itself delivers at most once and what was acknowledged to its producers. */
#define PROCS 2
#ifndef COUNT0
#define COUNT0 1
#endif
#define START_SEQ 3
#define START_OFF 3 /* message 1 (two cells) needs a PAD, the others do not */
#define RESTARTS

#include "ring.inc"
#define CAN_FENCE(o) (fenced[o] || dead[o])
#define MAY_SUSPECT(o) false
#include "producer.inc"
#include "consumer.inc"
#include "start.inc"
