/* systemd's readiness protocol (sd_notify(3)): a datagram to $NOTIFY_SOCKET; nothing where that is
 * not set. */
#ifndef TOLLGATE_NOTIFY_H
#define TOLLGATE_NOTIFY_H

void notify(const char *state);
/* RELOADING=1 with the time that systemd 253 wants beside it. */
void notify_reloading(void);

#endif
