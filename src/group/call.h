/* The protocol of one call, as steps that a host backend goes through in this order:
 *
 *     mm_call_begin     takes the call's number n and awaits left(n-1) of every peer
 *     (write slots; push ids and weights)
 *     mm_call_post      pushes the header to every rank and posts ready(n)
 *     mm_call_meet      awaits ready(n) of every peer, compares the headers
 *     (plan)
 *     mm_call_pull      before reading a peer's slots
 *     (pull)
 *     mm_call_left      posts left(n) to a peer, once nothing of it will be read any more
 *     (compute; push)
 *     mm_call_arrived   tells a rank that rows of it are in its slots
 *     mm_call_await     awaits own arrivals
 *     mm_call_end       posts left(n) wherever it is still owed, and ends the call
 *
 * Every path that began ends with mm_call_end. A step that fails has already done what the protocol asks (refused,
 * posted abort, broken the group); the caller only cleans up and ends. */
#ifndef MM_GROUP_CALL_H
#define MM_GROUP_CALL_H

#include "group/group.h"

enum mm_call_kind { MM_CALL_FORWARD = 1, MM_CALL_BACKWARD = 2 };
enum mm_arrival { MM_ARRIVAL_ROWS, MM_ARRIVAL_DW };

/* Locks the group. When this fails the call has ended: no mm_call_end. MMOE_BROKEN: the group broke in an earlier call,
 * and the caller's outputs stay as they are; any other failure broke it in this call, as one in a later step. */
mmoe_status mm_call_begin(struct mmoe_group *group);

/* For a backend whose devices go through the steps above among themselves: only takes the call's number and the lock,
 * fails like mm_call_begin, and gives the lock back. */
mmoe_status mm_call_take(struct mmoe_group *group);
void mm_call_give(struct mmoe_group *group);

/* The group is broken from now on, with the thread's error text, which is passed on to all ranks as it is. Returns
 * `status`. */
mmoe_status mm_call_break(struct mmoe_group *group, mmoe_status status);

/* The group's part of an agreement, and the number and kind of the current call. */
void mm_call_agreement(const struct mmoe_group *group, enum mm_call_kind kind, struct mm_agreement *agreed);

mmoe_status mm_call_post(struct mmoe_group *group, const struct mm_header *header);

/* After this every rank's header can be read. MMOE_REFUSED names the lowest rank that refused; MMOE_MISMATCH names the
 * field and both values. */
mmoe_status mm_call_meet(struct mmoe_group *group);
const struct mm_header *mm_call_header(const struct mmoe_group *group, int rank);

/* Where a test may stop a rank between the pulls from two peers. */
mmoe_status mm_call_pull(struct mmoe_group *group, int peer);

/* From now on the peer may overwrite its slots, and its ids, weights and header here. */
mmoe_status mm_call_left(struct mmoe_group *group, int peer);

/* `count` more rows (or dw values) of rank `owner` are complete in its slots: release, then count. */
mmoe_status mm_call_arrived(struct mmoe_group *group, int owner, enum mm_arrival what, int64_t count);

/* Until counts[r] arrivals of this call are in from every rank r, this one included. */
mmoe_status mm_call_await(struct mmoe_group *group, enum mm_arrival what, const int64_t *counts);

/* To be called now and then during long work, from any thread of the rank: shows the peers that this rank works (their
 * time limit starts anew) and tells whether some rank has aborted. Sets no error text and breaks nothing: true means
 * stop working and call mm_call_check from the calling thread. */
bool mm_call_working(struct mmoe_group *group);

/* MMOE_OK, or what some rank's abort says; then the group is broken. */
mmoe_status mm_call_check(struct mmoe_group *group);

/* A failure of this rank after ready(n): posts abort(n) with the calling thread's error text to every peer, breaks the
 * group, returns `status`. */
mmoe_status mm_call_abort(struct mmoe_group *group, mmoe_status status);

void mm_call_end(struct mmoe_group *group);

/* In place of mm_call_post, when this rank refuses the call it has begun: tells the peers the calling thread's error
 * text. Returns `status` and restores the text, or what failed. */
mmoe_status mm_call_post_refusal(struct mmoe_group *group, enum mm_call_kind kind, mmoe_status status);

/* A whole call that this rank refuses with the calling thread's error text: consumes the number, tells the peers.
 * Returns `status` and restores the text, or the status of a broken group. */
mmoe_status mm_call_refuse(struct mmoe_group *group, enum mm_call_kind kind, mmoe_status status);

#endif
