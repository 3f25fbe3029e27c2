/* Agreement among the processes of a group that have met. */
#include "group/meeting.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "group/wire.h"

#define HOST_EXTRA_SECONDS 0.5
#define GUEST_EXTRA_SECONDS 1.5
#define RETRY_NANOSECONDS 5000000

/* A passport on its way; its descriptors go beside it. */
struct letter {
    int32_t owner;
    struct mm_offer offer;
    struct mm_word word; /* the owner's report, for the host; empty when the host passes it on */
};

mmoe_status mm_meeting_open(struct mm_meeting *meeting, struct mmoe_group *group, const char *rendezvous) {
    *meeting = (struct mm_meeting){.group = group, .started = mm_now(), .host = -1};
    meeting->deadline = meeting->started + (double)group->config.arrive_timeout_ms * 1e-3;
    for (int r = 0; r < MMOE_MAX_WORLD; r++) {
        meeting->guest[r] = -1;
        meeting->pass[r] = MM_NO_PASSPORT;
    }
    return mm_place_of(rendezvous, group->name, &meeting->place);
}

static void close_if_open(int descriptor) {
    if (descriptor >= 0) {
        close(descriptor);
    }
}

static void close_passport(const struct mm_passport *passport) {
    close_if_open(passport->segment);
    close_if_open(passport->life);
    close_if_open(passport->offer.descriptor);
}

void mm_meeting_close(struct mm_meeting *meeting) {
    close_if_open(meeting->host);
    for (int r = 0; r < MMOE_MAX_WORLD; r++) {
        close_if_open(meeting->guest[r]);
        close_passport(&meeting->pass[r]);
    }
}

double mm_answers_deadline(const struct mm_meeting *meeting) {
    return meeting->deadline + (meeting->host < 0 ? HOST_EXTRA_SECONDS : GUEST_EXTRA_SECONDS);
}

mmoe_status mm_meeting_lost(const struct mm_meeting *meeting, int rank, int error) {
    const long long limit = (long long)meeting->group->config.arrive_timeout_ms;
    switch (error) {
    case ETIMEDOUT:
        return mm_fail(MMOE_TIMEOUT, "rank %d did not answer during set-up within %lld ms", rank, limit);
    case ECONNRESET:
        return mm_fail(MMOE_PEER_LOST, "rank %d died or gave up during set-up", rank);
    default:
        return mm_fail_system(error, "rank %d can't be spoken to during set-up", rank);
    }
}

struct mm_word mm_word_of(mmoe_status status) {
    struct mm_word word;
    memset(&word, 0, sizeof word);
    word.status = status;
    if (status != MMOE_OK) {
        snprintf(word.text, sizeof word.text, "%s", mmoe_last_error());
    }
    return word;
}

mmoe_status mm_word_status(const struct mm_word *word) {
    return word->status == MMOE_OK ? MMOE_OK
                                   : mm_fail((mmoe_status)word->status, "%.*s", (int)sizeof word->text - 1, word->text);
}

/* ---- Letters ------------------------------------------------------------------------------------ */

static int send_letter(const struct mm_meeting *meeting, int socket, int32_t owner, const struct mm_passport *passport,
                       const struct mm_word *word) {
    struct letter letter;
    memset(&letter, 0, sizeof letter); /* gaps too: it is sent as bytes */
    letter.owner = owner;
    letter.offer = passport->offer;
    if (word != NULL) {
        letter.word = *word;
    }
    const int descriptors[MM_WIRE_DESCRIPTORS] = {passport->segment, passport->life, passport->offer.descriptor};
    return mm_wire_send_with(socket, &letter, sizeof letter, descriptors, mm_answers_deadline(meeting));
}

static int receive_letter(const struct mm_meeting *meeting, int socket, struct letter *letter,
                          struct mm_passport *passport) {
    int descriptors[MM_WIRE_DESCRIPTORS];
    int error = mm_wire_receive_with(socket, letter, sizeof *letter, descriptors, mm_answers_deadline(meeting));
    *passport = (struct mm_passport){descriptors[0], descriptors[1], error == 0 ? letter->offer : MM_NO_OFFER};
    passport->offer.descriptor = descriptors[2];
    return error;
}

/* ---- Guest -------------------------------------------------------------------------------------- */

static mmoe_status hear_verdict(const struct mm_meeting *meeting) {
    struct mm_word verdict;
    int error = mm_wire_receive(meeting->host, &verdict, sizeof verdict, mm_answers_deadline(meeting));
    return error == 0 ? mm_word_status(&verdict) : mm_meeting_lost(meeting, 0, error);
}

static mmoe_status report(const struct mm_meeting *meeting, mmoe_status mine, const struct mm_passport *own) {
    const struct mm_word word = mm_word_of(mine);
    int error = send_letter(meeting, meeting->host, meeting->group->rank, own, &word);
    return error == 0 ? MMOE_OK : mm_meeting_lost(meeting, 0, error);
}

static mmoe_status receive_passports(struct mm_meeting *meeting) {
    for (int i = 1; i < meeting->group->world; i++) {
        struct letter letter;
        struct mm_passport passport;
        int error = receive_letter(meeting, meeting->host, &letter, &passport);
        if (error != 0) {
            return mm_meeting_lost(meeting, 0, error);
        }
        if (passport.life < 0 || letter.owner < 0 || letter.owner >= meeting->group->world ||
            meeting->pass[letter.owner].segment >= 0) {
            close_passport(&passport);
            return mm_meeting_lost(meeting, 0, EBADMSG);
        }
        meeting->pass[letter.owner] = passport;
    }
    return MMOE_OK;
}

/* ---- Host --------------------------------------------------------------------------------------- */

/* One guest's report; its passport too, when one came along. */
static mmoe_status hear_report(struct mm_meeting *meeting, int rank) {
    struct letter letter;
    struct mm_passport passport;
    int error = receive_letter(meeting, meeting->guest[rank], &letter, &passport);
    if (error != 0) {
        return mm_meeting_lost(meeting, rank, error);
    }
    if (passport.segment >= 0) {
        close_passport(&meeting->pass[rank]);
        meeting->pass[rank] = passport;
    }
    return mm_word_status(&letter.word);
}

/* The first failure among all ranks, the host's own first; every report is heard, so that none is taken for the answer
 * to a later question. */
static struct mm_word hear_all(struct mm_meeting *meeting, mmoe_status mine) {
    struct mm_word verdict = mm_word_of(mine);
    for (int r = 1; r < meeting->group->world; r++) {
        mmoe_status status = hear_report(meeting, r);
        if (status != MMOE_OK && verdict.status == MMOE_OK) {
            verdict = mm_word_of(status);
        }
    }
    return verdict;
}

/* A guest that can't be told any more is noticed by the next question, or by the first call. */
static void tell_all(const struct mm_meeting *meeting, const struct mm_word *verdict) {
    for (int r = 1; r < meeting->group->world; r++) {
        mm_wire_send(meeting->guest[r], verdict, sizeof *verdict, mm_answers_deadline(meeting));
    }
}

/* Likewise. */
static void send_passports(const struct mm_meeting *meeting) {
    const int world = meeting->group->world;
    for (int to = 1; to < world; to++) {
        for (int32_t owner = 0; owner < world; owner++) {
            if (owner != to) {
                send_letter(meeting, meeting->guest[to], owner, &meeting->pass[owner], NULL);
            }
        }
    }
}

/* ---- Both --------------------------------------------------------------------------------------- */

static mmoe_status agree(struct mm_meeting *meeting, mmoe_status mine, const struct mm_passport *own) {
    mine = mm_group_failed(meeting->group, mine);
    if (meeting->host < 0) {
        struct mm_word verdict = hear_all(meeting, mine);
        tell_all(meeting, &verdict);
        return mm_word_status(&verdict);
    }
    mmoe_status status = report(meeting, mine, own);
    return status == MMOE_OK ? hear_verdict(meeting) : status;
}

mmoe_status mm_meeting_agree(struct mm_meeting *meeting, mmoe_status mine) {
    const struct mm_passport none = MM_NO_PASSPORT;
    return agree(meeting, mine, &none);
}

/* The host's own passport is in the table only while it is sent: it belongs to the group's memory. */
mmoe_status mm_meeting_exchange(struct mm_meeting *meeting, mmoe_status mine, const struct mm_passport *own) {
    mmoe_status status = agree(meeting, mine, own);
    if (status != MMOE_OK) {
        return status;
    }
    if (meeting->host >= 0) {
        return receive_passports(meeting);
    }
    meeting->pass[0] = *own;
    send_passports(meeting);
    meeting->pass[0] = MM_NO_PASSPORT;
    return MMOE_OK;
}

/* Rank 0 is host where it can listen. Where somebody else is host already it comes as a guest, and is told that there
 * is another rank 0. */
static mmoe_status try_to_meet(struct mm_meeting *meeting, bool *met) {
    if (meeting->group->rank == 0) {
        int listener;
        mmoe_status status = mm_place_listen(&meeting->place, &listener);
        if (status != MMOE_OK) {
            return status;
        }
        if (listener >= 0) {
            *met = true;
            return mm_host_gather(meeting, listener);
        }
    }
    mmoe_status status = mm_guest_knock(meeting, met);
    return status == MMOE_OK && *met ? hear_verdict(meeting) : status;
}

mmoe_status mm_meeting_gather(struct mm_meeting *meeting) {
    const struct timespec pause = {.tv_nsec = RETRY_NANOSECONDS};
    bool met = meeting->group->world == 1;
    while (!met) {
        mmoe_status status = try_to_meet(meeting, &met);
        if (status != MMOE_OK) {
            return status;
        }
        if (!met && mm_now() >= meeting->deadline) {
            return mm_fail(MMOE_TIMEOUT, "rank 0 did not come to the set-up within %lld ms",
                           (long long)meeting->group->config.arrive_timeout_ms);
        }
        if (!met) {
            nanosleep(&pause, NULL);
        }
    }
    return MMOE_OK;
}
