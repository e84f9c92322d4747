/* FDR-L when the consumer dies at any moment and starts again: a new incarnation with fresh memory. Messages that the
 * old one had not handed on are lost with it. The new one accepts no message that was on its way to the old one. A
 * producer that learns of the death resends. Each consumer delivers at most once, and delivers what it acknowledged. */
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
