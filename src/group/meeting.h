/* The meeting of the processes of a group during set-up. Rank 0 is its host, the others are guests.
 *
 * The host gathers a hello from every guest, then all agree, again and again: each reports how its last stage went, the
 * host answers all with one verdict. So a failure anywhere is a failure everywhere, with the same sentence. */
#ifndef MM_GROUP_MEETING_H
#define MM_GROUP_MEETING_H

#include "group/group.h"
#include "group/rendezvous.h"

struct mm_meeting {
    struct mmoe_group *group;
    struct mm_place place;
    double started;
    double deadline;                         /* for the ranks to come; the answers after that have a little longer */
    int host;                                /* guests: the connection to rank 0; -1: none */
    int guest[MMOE_MAX_WORLD];               /* host: the connections to the others; -1: none */
    struct mm_passport pass[MMOE_MAX_WORLD]; /* the peers', until they are mapped; -1: none */
};

/* A rank's report, and the verdict on all. */
struct mm_word {
    int32_t status;
    char text[MM_ERROR_BYTES];
};

mmoe_status mm_meeting_open(struct mm_meeting *meeting, struct mmoe_group *group, const char *rendezvous);

/* All ranks come together, and agree on their configurations. */
mmoe_status mm_meeting_gather(struct mm_meeting *meeting);

/* Reports `mine`, with the thread's error text, and returns the verdict. */
mmoe_status mm_meeting_agree(struct mm_meeting *meeting, mmoe_status mine);

/* The same, and brings the passports of all peers when the verdict is good. */
mmoe_status mm_meeting_exchange(struct mm_meeting *meeting, mmoe_status mine, const struct mm_passport *own);

void mm_meeting_close(struct mm_meeting *meeting);

/* ---- Between the files of the meeting ---- */

/* As host: gathers the guests and tells them the verdict. Ends listening. */
mmoe_status mm_host_gather(struct mm_meeting *meeting, int listener);

/* As guest: one attempt to reach the host. *welcome stays false when nobody is there (yet). */
mmoe_status mm_guest_knock(struct mm_meeting *meeting, bool *welcome);

/* Fails as a broken conversation with `rank` says: it died, or did not answer. */
mmoe_status mm_meeting_lost(const struct mm_meeting *meeting, int rank, int error);

/* As the word says. */
mmoe_status mm_word_status(const struct mm_word *word);
struct mm_word mm_word_of(mmoe_status status);

/* Until when a rank waits for answers: a guest longer than the host, so that it hears the host's verdict on another
 * guest that did not answer before it gives up the host. */
double mm_answers_deadline(const struct mm_meeting *meeting);

#endif
