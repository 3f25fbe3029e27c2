/* Messages between CTAs: data stored plainly or by bulk copies, and a flag that orders them. */
#include "tools.cuh"

enum message_kind { STORE_GPU, STORE_SYSTEM, ADD_GPU, ADD_SYSTEM, FENCE_GPU, FENCE_SYSTEM, SWAP_SYSTEM, FETCH_ADD_GPU };
enum { MESSAGE_BYTES = 1024, FLAG_STRIDE = 32 };

/* Raises the flag from `value` - 1, after all that this thread has seen. */
MM_DEVICE void post(uint32_t kind, uint32_t *flag, uint32_t value) {
    switch (kind) {
    case STORE_GPU:
        store_release_gpu(flag, value);
        break;
    case STORE_SYSTEM:
        store_release_system(flag, value);
        break;
    case ADD_GPU:
        add_release_gpu(flag, 1);
        break;
    case ADD_SYSTEM:
        add_release_system(flag, 1);
        break;
    case FENCE_GPU:
        fence_gpu();
        add_relaxed_gpu(flag, 1);
        break;
    case FENCE_SYSTEM:
        fence_system();
        add_relaxed_gpu(flag, 1);
        break;
    case SWAP_SYSTEM:
        compare_swap_system(flag, value - 1, value);
        break;
    case FETCH_ADD_GPU:
        fetch_add_acq_rel_gpu(flag, 1);
        break;
    }
}

MM_DEVICE void await(uint32_t kind, uint32_t *flag, uint32_t value, uint32_t *late) {
    const bool system = kind == STORE_SYSTEM || kind == ADD_SYSTEM || kind == SWAP_SYSTEM;
    deadline d = {0, 0};
    for (;;) {
        uint32_t seen;
        if (kind == FENCE_SYSTEM)
            seen = load_relaxed_system(flag);
        else if (system)
            seen = load_acquire_system(flag);
        else
            seen = load_acquire_gpu(flag);
        if (seen == value || deadline_passed(d, late))
            break;
    }
    if (kind == FENCE_SYSTEM)
        fence_system();
}

/* Pairs of CTAs, number[0] messages of kind number[1] from the even to the odd one, each answered before the next.
 * Words of the output: 2 flags a pair, FLAG_STRIDE words apart; a slot a pair; what the odd CTA has read of each
 * message. */
MM_KERNEL(message_pass, parameters, 128) {
    const uint32_t messages = p.number[0], kind = p.number[1], t = thread_index(), pair = cta_index() / 2,
                   pairs = cta_count() / 2;
    uint32_t *sent = (uint32_t *)p.out + pair * 2 * FLAG_STRIDE, *answered = sent + FLAG_STRIDE;
    uint8_t *slots = p.out + pairs * 2 * FLAG_STRIDE * 4, *slot = slots + pair * MESSAGE_BYTES,
            *copies = slots + pairs * MESSAGE_BYTES + (uint64_t)pair * messages * MESSAGE_BYTES;
    for (uint32_t message = 0; message < messages; message++) {
        if (cta_index() % 2 == 0) {
            for (uint32_t at = t * 4; at < MESSAGE_BYTES; at += cta_threads(p) * 4)
                store_u32(slot + at, pair << 24 | message << 16 | at);
            cta_sync();
            if (t == 0) {
                post(kind, sent, message + 1);
                await(kind, answered, message + 1, p.late);
            }
            cta_sync();
        } else {
            if (t == 0)
                await(kind, sent, message + 1, p.late);
            cta_sync();
            for (uint32_t at = t * 4; at < MESSAGE_BYTES; at += cta_threads(p) * 4)
                store_u32(copies + message * MESSAGE_BYTES + at, load_u32(slot + at));
            cta_sync();
            if (t == 0)
                post(kind, answered, message + 1);
        }
    }
}

/* A chain of CTAs: each stores words of its own, waits for the flag of the one before, and reads the words of all
 * before it. number[0]: the kind. Words of the output: a flag a CTA, FLAG_STRIDE words apart; 32 words a CTA; 32 sums a
 * CTA. */
MM_KERNEL(message_chain, parameters, 32) {
    const uint32_t cta = cta_index(), ctas = cta_count(), lane = lane_index(), words = ctas * FLAG_STRIDE;
    uint32_t *flags = (uint32_t *)p.out;
    put(p, words + cta * 32 + lane, cta * 1000 + lane);
    if (cta > 0 && lane == 0)
        await(p.number[0], flags + (cta - 1) * FLAG_STRIDE, 1, p.late);
    warp_sync();
    uint32_t sum = 0;
    for (uint32_t before = 0; before < cta; before++)
        sum = sum * 3 + load_u32(flags + words + before * 32 + (lane + 1) % 32);
    put(p, words + (ctas + cta) * 32 + lane, sum);
    warp_sync();
    if (lane == 0)
        post(p.number[0], flags + cta * FLAG_STRIDE, 1);
}

/* Pairs of CTAs, number[0] rounds: both store a word of their own and then look at the other's. At least one must see
 * what the other has stored. Words of the output, FLAG_STRIDE apart: for each pair two flags, two words, whether the
 * odd CTA has seen nothing, and in how many rounds both have. */
MM_KERNEL(message_store_and_look, parameters, 32) {
    const uint32_t rounds = p.number[0], odd = cta_index() % 2;
    uint32_t *flags = (uint32_t *)p.out + cta_index() / 2 * 6 * FLAG_STRIDE, *words = flags + 2 * FLAG_STRIDE,
             *blind = flags + 4 * FLAG_STRIDE, both = 0;
    for (uint32_t round = 1; round <= rounds && lane_index() == 0; round++) {
        store_release_system(words + odd * FLAG_STRIDE, round);
        fence_sc_system();
        const uint32_t saw_nothing = load_acquire_system(words + (1 - odd) * FLAG_STRIDE) < round;
        if (odd) {
            store_u32(blind, saw_nothing);
            post(STORE_SYSTEM, flags + FLAG_STRIDE, round);
            await(STORE_SYSTEM, flags, round, p.late);
        } else {
            await(STORE_SYSTEM, flags + FLAG_STRIDE, round, p.late);
            both += saw_nothing & load_u32(blind);
            post(STORE_SYSTEM, flags, round);
        }
    }
    if (lane_index() == 0)
        store_u32(odd ? blind : blind + FLAG_STRIDE, odd ? 0 : both);
}

/* As message_pass, with one warp a CTA and data that bulk copies write and read: shared memory of the even CTA, the
 * slot, shared memory of the odd CTA, the copies. */
MM_KERNEL(message_bulk, parameters, 32) {
    const uint32_t messages = p.number[0], kind = p.number[1], pair = cta_index() / 2, pairs = cta_count() / 2;
    uint32_t *sent = (uint32_t *)p.out + pair * 2 * FLAG_STRIDE, *answered = sent + FLAG_STRIDE;
    uint8_t *slots = p.out + pairs * 2 * FLAG_STRIDE * 4, *slot = slots + pair * MESSAGE_BYTES,
            *copies = slots + pairs * MESSAGE_BYTES + (uint64_t)pair * messages * MESSAGE_BYTES;
    const smem_t bar = smem_base(), data = bar + DATA_OFFSET;
    if (lane_index() == 0) {
        mbarrier_init(bar, 1);
        mbarrier_init_fence();
    }
    cta_sync();
    for (uint32_t message = 0; message < messages; message++) {
        if (cta_index() % 2 == 0) {
            for (uint32_t at = lane_index() * 4; at < MESSAGE_BYTES; at += 128)
                smem_store_u32(data + at, pair << 24 | message << 16 | at);
            fence_async_shared();
            warp_sync();
            if (lane_index() == 0) {
                bulk_store(slot, data, MESSAGE_BYTES);
                bulk_commit();
                bulk_wait<0>();
                fence_async();
                post(kind, sent, message + 1);
                await(kind, answered, message + 1, p.late);
            }
            warp_sync();
        } else if (lane_index() == 0) {
            await(kind, sent, message + 1, p.late);
            fence_async();
            mbarrier_arrive_expect(bar, MESSAGE_BYTES);
            bulk_load(data, slot, MESSAGE_BYTES, bar);
            wait_phase(bar, message & 1, p.late);
            bulk_store(copies + message * MESSAGE_BYTES, data, MESSAGE_BYTES);
            bulk_commit();
            bulk_wait<0>();
            fence_async();
            post(kind, answered, message + 1);
        }
    }
}

/* Data that a thread stores plainly and its bulk copy reads, and data that its bulk copy writes and it reads plainly.
 * Each thread has 64 bytes of the input, of the output, and of a second half of the output. */
MM_KERNEL(message_between_proxies, parameters, 32) {
    const uint32_t lane = lane_index();
    const smem_t bar = smem_base() + 8 * lane, data = smem_base() + DATA_OFFSET + 64 * lane;
    const uint32_t half = cta_threads(p) * 64;
    mbarrier_init(bar, 1);
    mbarrier_init_fence();
    for (uint32_t at = 64 * lane; at < 64 * lane + 64; at += 16)
        store_u32x4(p.out + at, load_u32x4(p.in + at));
    fence_async();
    mbarrier_arrive_expect(bar, 64);
    bulk_load(data, p.out + 64 * lane, 64, bar);
    wait_phase(bar, 0, p.late);
    bulk_store(p.out + half + 64 * lane, data, 64);
    bulk_commit();
    bulk_wait<0>();
    for (uint32_t at = half + 64 * lane; at < half + 64 * lane + 64; at += 4)
        store_u32(p.out + at, load_u32(p.out + at) + 1);
}
