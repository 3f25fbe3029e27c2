/* The calls of one group, as docs/protocol.md tells them, for spin to try in every order.
 *
 * What is modelled
 *   W ranks make CALLS calls. In each call a rank refuses or takes part; one that takes part brings tokens whose rows
 *   go to some set of peers, maybe none, and may want no result back (a backward without dx and dw). Being late needs
 *   no code: spin delays every rank at every step for as long as it likes.
 *   Up to FAULTS times in a run, at any step, one of these happens: a rank dies, and that can be seen; a rank stops for
 *   ever, and nobody can tell; a rank fails by itself; a rank loses patience with a peer that is only late.
 *   With KINDS the ranks may issue different calls; with CAPACITY a rank may be sent more rows than it holds. Without
 *   REFUSALS no rank refuses; without IDLE every rank sends rows and wants them back.
 *
 * How it stays small without losing an order
 *   Every access to a buffer lasts from the first moment the protocol allows to the last: a buffer is TORN from the
 *   step that permits its writing to the flag that announces it; a reader looks at its first moment and at its last.
 *   Numbers of calls in a buffer never come back, so what is right at both ends was right all along.
 *   Flags only grow, so awaiting several one by one equals awaiting all at once. Memory is sequentially consistent
 *   here: what orders data before the flag that covers them is told in the document.
 *   Arrivals are kept as posted minus awaited, and what nobody will read again is zeroed: histories that make no
 *   difference any more merge.
 *
 * PLANT, one of the names below, plants an error, which spin must find. */

#ifndef W
#define W 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef REFUSALS
#define REFUSALS true
#endif
#ifndef KINDS
#define KINDS false
#endif
#ifndef IDLE
#define IDLE true
#endif
#ifndef CAPACITY
#define CAPACITY W /* most peers whose rows a rank holds; W: no limit */
#endif
#ifndef PLANT
#define PLANT 0
#endif

#define X_BEFORE_LEFT 1        /* the slot is written before left(n-1) is there */
#define IDS_BEFORE_LEFT 2      /* so are the ids in the peers' memory */
#define HEADER_BEFORE_LEFT 3   /* so are the headers */
#define READY_BEFORE_X 4       /* ready is posted while the slot is being written */
#define LEFT_BEFORE_PULL 5     /* left is posted before the last pull */
#define WANTS_AFTER_LEFT 6     /* left is posted, then the header is read to see what the peer wants */
#define LEFT_EXACTLY 7         /* left is compared with ==: a refuser's early left is missed */
#define REFUSER_STAYS 8        /* a refuser posts no left */
#define IDLE_STAYS 9           /* a rank without rows of a peer posts it no left */
#define REFUSAL_OVERLOOKED 10  /* a rank goes on with a call that a peer refuses */
#define REFUSAL_AT_ONCE 11     /* a rank returns at the first refusal, without awaiting the other headers */
#define MEET_ONE 12            /* a rank awaits one peer and goes on */
#define ARRIVAL_BEFORE_ROWS 13 /* arrivals are posted before the rows are complete */
#define END_BEFORE_ROWS 14     /* a rank ends a call without awaiting its rows */
#define DEAF_AT_LEFT 15        /* the wait for left does not look for aborts */
#define DEAF_AT_READY 16       /* nor does the wait for ready */
#define DEAF_AT_ROWS 17        /* nor does the wait for rows */
#define ABORT_UNRELAYED 18     /* who hears an abort tells nobody */
#define DEAD_BEFORE_FLAG 19    /* a dead peer is given up although it had posted what is awaited */
#define BROKEN_GOES_ON 20      /* a rank that gave up a call makes the next one */
#define OWN_VERDICT 21         /* a rank looks at its own capacity alone */

#define BIT(rank) (1 << (rank))
#define HAS(set, rank) (((set) >> (rank)) & 1)
#define ALL (BIT(W) - 1)
#define PEERS (ALL - BIT(r))
#define AT(owner, writer) ((owner) * W + (writer)) /* what `writer` writes in the memory of `owner` */

#if W == 2
#define EVERY(holds) (holds(0) && holds(1))
#define SOME(holds) (holds(0) || holds(1))
#define LOWEST(set) (HAS(set, 0) -> 0 : 1)
#define ROWS_FOR(rank) (HAS(demand[0], rank) + HAS(demand[1], rank))
#else
#define EVERY(holds) (holds(0) && holds(1) && holds(2))
#define SOME(holds) (holds(0) || holds(1) || holds(2))
#define LOWEST(set) (HAS(set, 0) -> 0 : (HAS(set, 1) -> 1 : 2))
#define ROWS_FOR(rank) (HAS(demand[0], rank) + HAS(demand[1], rank) + HAS(demand[2], rank))
#endif

/* ---- Shared memory. Buffers and flags hold numbers of calls ---- */

#define TORN 100

typedef Header {
    byte call;
    bool refuses, wants;
    bit kind
}

byte slot[W];        /* x of the rank */
byte ids[W * W];
byte routing[W * W]; /* what the ids say: the peers that get rows of the writer */
Header header[W * W];
byte combine[W * W]; /* the owner's combine slots that the writer fills */
byte arrived[W * W];
byte ready[W * W], left[W * W];
bool aborted[W * W];

/* ---- What only the faults and the checks know ---- */

byte faults = FAULTS; /* still to come */
bool gone[W];         /* ended or dead, as peers can see */
bool stopped;         /* some rank has stopped for ever */

#define BROKEN 101
byte open[W];                                /* the call in which peers may push rows to the rank */
byte cause = CALLS + 1;                      /* lowest call that a rank gave up by itself */
byte refusers[CALLS + 1], other[CALLS + 1];  /* ranks that refuse call n; that take it for one of kind 1 */
byte verdict[CALLS + 1];                     /* ranks over their capacity, by the first plan made; with bit W set */

/* ---- Waiting ---- */

#if PLANT == LEFT_EXACTLY
#define LEFT(s) (s == r || left[AT(r, s)] == n - 1)
#else
#define LEFT(s) (s == r || left[AT(r, s)] >= n - 1)
#endif

#define READY(s) (s == r || ready[AT(r, s)] == n)
#define REFUSES(s) (s != r && READY(s) && header[AT(r, s)].refuses)
#if PLANT == MEET_ONE
#define MET READY((r + 1) % W)
#elif PLANT == REFUSAL_AT_ONCE
#define MET (EVERY(READY) || SOME(REFUSES))
#else
#define MET EVERY(READY)
#endif

#define ROWS(s) (!HAS(expected, s) || arrived[AT(r, s)] == 1)

#define ABORTED(s) (s != r && aborted[AT(r, s)])

#if PLANT == DEAD_BEFORE_FLAG
#define LOST(s, flag) (s != r && gone[s])
#else
#define LOST(s, flag) (gone[s] && !flag(s))
#endif
#define LOST_LEFT(s) LOST(s, LEFT)
#define LOST_READY(s) LOST(s, READY)
#define LOST_ROWS(s) LOST(s, ROWS)

#define FAULT faults > 0 -> faults--

/* Deadlines are two things here. A peer that has stopped for ever is given up when nothing else in the world can move.
 * A peer that is only late may be given up at any moment: a fault. */
inline await(done, lost, hears_aborts) {
    if
    :: done
    :: hears_aborts && SOME(ABORTED) -> goto hears
    :: lost -> goto gives_up
    :: !done && stopped && timeout -> goto gives_up
    :: !done && FAULT; goto gives_up
    :: FAULT; goto dies
    fi
}

inline may_die() {
    if
    :: true
    :: FAULT; goto dies
    fi
}

inline may_fail() {
    if
    :: true
    :: FAULT; goto gives_up
    :: FAULT; goto dies
    fi
}

/* ---- Accesses: first and last moments ---- */

inline start_writing_ids() {
    for (s : 0 .. W - 1) {
        if :: s != r -> ids[AT(s, r)] = TORN :: else fi
    }
}

inline start_writing_headers() {
    for (s : 0 .. W - 1) {
        if :: s != r -> header[AT(s, r)].call = TORN :: else fi
    }
}

/* The slot, and ids and header in the memory of p, are complete */
inline post_ready(p) {
    if
    :: !refuses ->
        if :: PLANT != READY_BEFORE_X -> slot[r] = n :: else fi;
        ids[AT(p, r)] = n;
        routing[AT(p, r)] = goes_to;
        open[r] = n
    :: else
    fi;
    header[AT(p, r)].call = n;
    header[AT(p, r)].refuses = refuses;
    header[AT(p, r)].wants = wants;
    header[AT(p, r)].kind = kind;
    assert(ready[AT(p, r)] == n - 1);
    ready[AT(p, r)] = n
}

inline start_reading_headers() {
    for (s : 0 .. W - 1) {
        if
        :: s == r || !READY(s)
        :: else ->
            assert(header[AT(r, s)].call == n);
            if
            :: header[AT(r, s)].refuses -> refused = refused | BIT(s)
            :: else -> differs = differs || header[AT(r, s)].kind != kind
            fi
        fi
    }
}

/* From the ids of all ranks each makes the same plan */
inline plan() {
    demand[r] = goes_to;
    for (s : 0 .. W - 1) {
        if
        :: s != r -> assert(ids[AT(r, s)] == n); demand[s] = routing[AT(r, s)]
        :: else
        fi
    }
    for (s : 0 .. W - 1) {
        if
        :: ROWS_FOR(s) > CAPACITY && (PLANT != OWN_VERDICT || s == r) -> over = over | BIT(s)
        :: else
        fi
    }
    assert(verdict[n] == 0 || verdict[n] == (over | BIT(W)));
    verdict[n] = over | BIT(W)
}

/* Pulls the rows of every peer, and pushes what becomes of them to those that want it */
inline start_moving_rows() {
    for (s : 0 .. W - 1) {
        if
        :: s != r && HAS(demand[s], r) ->
            assert(slot[s] == n);
            if :: PLANT == LEFT_BEFORE_PULL -> post_left(s) :: else fi;
            if
            :: header[AT(r, s)].wants || PLANT == WANTS_AFTER_LEFT -> pushes = pushes | BIT(s)
            :: else
            fi;
            if
            :: header[AT(r, s)].wants ->
                assert(open[s] == n || open[s] == BROKEN);
                combine[AT(s, r)] = TORN
            :: else
            fi
        :: s != r && !HAS(demand[s], r) && PLANT == IDLE_STAYS -> owes_left = owes_left & ~BIT(s)
        :: else
        fi
    }
}

inline finish_reading(p) {
    assert(header[AT(r, p)].call == n && ids[AT(r, p)] == n);
    assert(!HAS(demand[p], r) || slot[p] == n)
}

inline post_left(p) {
    assert(left[AT(p, r)] == n - 1);
    left[AT(p, r)] = n;
    routing[AT(r, p)] = 0
}

inline post_rows(p) {
    if
    :: PLANT == WANTS_AFTER_LEFT -> assert(header[AT(r, p)].call == n)
    :: else
    fi;
    if
    :: header[AT(r, p)].wants ->
        assert(open[p] == n || open[p] == BROKEN);
        if :: PLANT != ARRIVAL_BEFORE_ROWS -> combine[AT(p, r)] = n :: else fi;
        arrived[AT(p, r)]++
    :: else
    fi;
    pushes = pushes & ~BIT(p)
}

inline start_summing() {
    for (s : 0 .. W - 1) {
        if
        :: HAS(expected, s) -> assert(combine[AT(r, s)] == n); arrived[AT(r, s)]--
        :: else
        fi
    }
}

inline finish_summing() {
    for (s : 0 .. W - 1) {
        if
        :: HAS(expected, s) -> assert(combine[AT(r, s)] == n); combine[AT(r, s)] = 0
        :: else
        fi
    }
}

/* ---- A rank ---- */

inline choose() {
    if
    :: REFUSALS -> refuses = true; refusers[n] = refusers[n] | BIT(r)
    :: true ->
        if
        :: IDLE -> goes_to = 0
        :: goes_to = PEERS; wants = true
        :: IDLE -> goes_to = PEERS
#if W == 3
        :: goes_to = BIT((r + 1) % W); wants = true
#endif
        fi;
        if
        :: KINDS -> kind = 1; other[n] = other[n] | BIT(r)
        :: true
        fi
    fi
}

/* What a rank knows of a call */
inline forget() {
    refuses = false;
    wants = false;
    differs = false;
    kind = 0;
    goes_to = 0;
    refused = 0;
    over = 0;
    expected = 0;
    for (s : 0 .. W - 1) {
        demand[s] = 0
    }
}

active [W] proctype rank() {
    byte r = _pid, n = 1, s;
    bool refuses, wants, differs;
    bit kind;
    byte goes_to;   /* peers that get rows of this rank */
    byte refused;   /* peers that refuse */
    byte demand[W]; /* plan: where the rows of each rank go */
    byte over;      /* plan: ranks over their capacity */
    byte pushes;    /* peers that still get rows back from this rank */
    byte expected;  /* peers from which this rank gets rows back */
    byte owes_left; /* peers */
    bool tells;

begins:
    if
    :: n > CALLS -> goto leaves_group
    :: else
    fi;
    atomic {
        await(EVERY(LEFT), SOME(LOST_LEFT), PLANT != DEAF_AT_LEFT);
        owes_left = PEERS;
        choose();
        if
        :: !refuses -> slot[r] = TORN; start_writing_ids()
        :: else
        fi;
        start_writing_headers();
        s = (r + 1) % W
    }
    do
    :: atomic { s != r -> may_fail(); post_ready(s); s = (s + 1) % W }
    :: else -> break
    od;
    if
    :: refuses && PLANT == REFUSER_STAYS -> owes_left = 0; goto ends
    :: refuses && PLANT != REFUSER_STAYS -> goto ends
    :: else
    fi;

    /* Meet */
    atomic {
        await(MET, SOME(LOST_READY), PLANT != DEAF_AT_READY);
        start_reading_headers();
        if
        :: refused && PLANT != REFUSAL_OVERLOOKED -> assert(LOWEST(refused) == LOWEST(refusers[n])); goto ends
        :: else -> assert(!refusers[n])
        fi;
        assert(differs == (other[n] != 0 && other[n] != ALL));
        if
        :: differs -> goto ends
        :: else
        fi;
        plan();
        if
        :: over -> goto ends
        :: else
        fi;
        start_moving_rows();
        if
        :: wants && PLANT != END_BEFORE_ROWS -> expected = goes_to
        :: else
        fi
    }
    do
    :: atomic {
            owes_left -> may_fail();
            s = LOWEST(owes_left);
            finish_reading(s);
            if :: PLANT != LEFT_BEFORE_PULL || !HAS(demand[s], r) -> post_left(s) :: else fi;
            owes_left = owes_left & ~BIT(s)
        }
    :: atomic { pushes -> may_fail(); post_rows(LOWEST(pushes)) }
    :: else -> break
    od;
    atomic {
        await(EVERY(ROWS), SOME(LOST_ROWS), PLANT != DEAF_AT_ROWS);
        start_summing()
    }
    atomic {
        may_fail();
        finish_summing();
        assert(n <= cause)
    }

    /* Every way out of a call, whatever it returns */
ends:
    do
    :: atomic { owes_left -> may_die(); s = LOWEST(owes_left); post_left(s); owes_left = owes_left & ~BIT(s) }
    :: else -> break
    od;
    atomic {
        open[r] = 0;
        n++;
        forget();
        if :: PLANT == X_BEFORE_LEFT -> slot[r] = TORN :: else fi;
        if :: PLANT == IDS_BEFORE_LEFT -> start_writing_ids() :: else fi;
        if :: PLANT == HEADER_BEFORE_LEFT -> start_writing_headers() :: else fi;
        s = 0;
        goto begins
    }

    /* The group breaks: its later calls return at once and touch nothing */
gives_up:
    atomic {
        tells = true;
        if :: n < cause -> cause = n :: else fi
    }
hears:
    atomic {
        assert(faults < FAULTS);
        open[r] = BROKEN;
        forget();
        pushes = 0;
        s = (r + 1) % W;
        if :: PLANT == ABORT_UNRELAYED && !tells -> s = r :: else fi
    }
    do
    :: atomic { s != r -> may_die(); aborted[AT(s, r)] = true; s = (s + 1) % W }
    :: else -> break
    od;
    if
    :: PLANT == BROKEN_GOES_ON -> goto ends
    :: else
    fi;

leaves_group:
    atomic {
        if
        :: open[r] != BROKEN -> gone[r] = true
        :: else /* the program lives on: peers have nothing but its abort to go by */
        fi;
        goto finished
    }
dies:
    atomic {
        if
        :: gone[r] = true
        :: stopped = true
        fi
    }
finished:
    atomic { forget(); r = 0; n = 0; s = 0; owes_left = 0; pushes = 0; tells = false }
}
