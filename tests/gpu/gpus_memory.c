/* Ranks of several GPUs whose memory runs out: a forward is given up, and the others hear of it at once; a backward is
 * refused. */
#include <stdio.h>
#include <string.h>

#include "loss.h"

#define GREEDY 64

/* What goes to the victim from all ranks together. A driver has taken some memory for its streams from the device, 32
 * MiB at a time, and a call finds room in what is left of that: the rows, 1 KiB each, need several times as much. */
static int64_t tokens_for_victim(void) {
    return rig_simulated() ? 200 : 60000;
}

static void send_to_victim(struct rig_batch *batch) {
    for (int64_t s = 0; s < rig_batch_slots(batch); s++)
        batch->ids[s] = batch->layer.experts - 1;
}

static void take_all_memory(struct rig_rank *rank, void *taken[GREEDY]) {
    int count = 0;
    for (size_t bytes = (size_t)1 << 42; bytes > (size_t)1 << 17; bytes /= 2)
        while (count < GREEDY && mmoe_device_alloc(rank->group, bytes, &taken[count]) == MMOE_OK)
            count++;
}

static void give_memory(struct rig_rank *rank, void *taken[GREEDY]) {
    for (int i = 0; i < GREEDY; i++)
        mmoe_device_free(rank->group, &taken[i]);
}

/* The victim has no memory for its rows; it tells so, and nobody waits for a time limit. */
static void giving_up_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    const bool gives_up = rank->rank == victim_of(rank->world);
    void *taken[GREEDY] = {NULL};
    struct attempt attempt;
    struct member member;
    if (!member_join(rank, loss, &member) || !attempt_place(rank, &member, loss, &attempt))
        return;
    if (gives_up)
        take_all_memory(rank, taken);
    pthread_barrier_wait(&loss->met);
    attempt_begin(&member, loss, &attempt);
    RIG_EXPECT(rank, attempt.status == (gives_up ? MMOE_OUT_OF_MEMORY : MMOE_PEER_LOST), "%s: %s",
               mmoe_status_name(attempt.status), mmoe_last_error());
    RIG_EXPECT(rank,
               strstr(mmoe_last_error(), "bytes asked") &&
                   (gives_up || names_victim(rank, attempt.status, "gave up call 1: no memory")),
               "\"%s\"", mmoe_last_error());
    RIG_EXPECT(rank, !took_longer(attempt.seconds, LOSS_AT_ONCE), "told after %.1f s", attempt.seconds);
    RIG_EXPECT(rank, attempt_fetch(rank, &attempt) && is_spoilt(loss, &attempt.call), "y is not NaN");
    rig_call_free(&attempt.call);
    give_memory(rank, taken);
    RIG_EXPECT(rank, mmoe_group_check(rank->group) != MMOE_OK, "the group is whole");
    if (is_broken(rank, &member, loss))
        ends(rank, &member, LOSS_AT_ONCE);
}

static void a_rank_gives_up(void **state) {
    (void)state;
    for
        GPUS_EACH_WORLD(world) {
            struct loss *loss = loss_make(world, FORWARD, MMOE_CAPACITY_GROW, tokens_for_victim() / world);
            send_to_victim(&loss->batch);
            loss->report = true;
            loss_run(loss, giving_up_body, RIG_THREADS);
            another_group_works(loss);
            loss_free(loss);
        }
}

/* A backward knows what it needs before the ranks meet: who has no memory refuses, and all is well when there is some.
 */
static void without_memory_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    const bool refuses = rank->rank == victim_of(rank->world);
    void *taken[GREEDY] = {NULL};
    struct attempt attempt;
    struct member member;
    char refused[60];
    snprintf(refused, sizeof refused, "rank %d refused call 2: no memory", victim_of(rank->world));
    if (!member_join(rank, loss, &member) || !attempt_place(rank, &member, loss, &attempt) ||
        !rig_call_forward(rank, member.layer, &attempt.call, &attempt.placed, &loss->batch))
        return;
    if (refuses)
        take_all_memory(rank, taken);
    pthread_barrier_wait(&loss->met);
    attempt_begin(&member, loss, &attempt);
    RIG_EXPECT(rank,
               attempt.status == (refuses ? MMOE_OUT_OF_MEMORY : MMOE_REFUSED) &&
                   strstr(mmoe_last_error(), refuses ? "bytes asked" : refused),
               "%s: %s", mmoe_status_name(attempt.status), mmoe_last_error());
    give_memory(rank, taken);
    RIG_EXPECT(rank, rig_call_fetch(rank, &attempt.call, &attempt.placed), "not fetched");
    for (int i = RIG_DX; i <= RIG_DDOWN && refuses; i++)
        RIG_EXPECT(rank, rig_tensor_intact(&attempt.call.tensor[i]), "a backward that was refused wrote");
    RIG_EXPECT(rank, refuses || is_spoilt(loss, &attempt.call), "results of a failed call look good");
    if (!rig_call_backward(rank, member.layer, &attempt.call, &attempt.placed, &loss->batch))
        return;
    rig_placed_free(rank, &attempt.placed);
    rig_call_free(&attempt.call);
    member_leave(&member);
}

static void a_rank_has_no_memory_for_a_backward(void **state) {
    (void)state;
    for
        GPUS_EACH_WORLD(world) {
            struct loss *loss = loss_make(world, BACKWARD, MMOE_CAPACITY_GROW, tokens_for_victim() / world);
            struct rig_world ranks = rig_world_for(&loss->batch, 1, gpus_kind);
            send_to_victim(&loss->batch);
            loss->report = true;
            rig_world_run(&ranks, without_memory_body, loss);
            compare_with_cpu(&loss->batch, loss->options);
            loss_free(loss);
        }
}

int main(void) {
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(a_rank_gives_up),
        cmocka_unit_test(a_rank_has_no_memory_for_a_backward),
    };
    return gpus_main(2, (struct gpus_tests){NULL, 0}, GPUS_TESTS(of_threads));
}
