/* How a rank sleeps and is woken: src/group/wait.c, for spin. PEERS peers post POSTS times each; the waiter sleeps
 * between looks and must see every post without the help of a time limit.
 *
 * The kernel's futex call compares the doorbell and puts to sleep in one step; a wake-up finds only who sleeps. */

#ifndef PEERS
#define PEERS 2
#endif
#ifndef POSTS
#define POSTS 2
#endif
#ifndef PLANT
#define PLANT 0
#endif

#define BELL_BEFORE_FLAG 1 /* a peer rings before it has posted */
#define LOOK_BEFORE_BELL 2 /* the waiter looks at the flags before it reads the doorbell */
#define SLEEP_BLINDLY 3    /* the waiter sleeps whatever the doorbell says */

byte flag[PEERS];
byte bell;
bool asleep;

active proctype waiter() {
    byte seen, looks, target = 1;

    do
    :: target > POSTS -> break
    :: else ->
        if
        :: PLANT != LOOK_BEFORE_BELL -> seen = bell
        :: else
        fi;
        if
        :: flag[0] >= target -> looks = 1
        :: else -> looks = 0
        fi;
        if
        :: flag[PEERS - 1] >= target -> looks++
        :: else
        fi;
        if
        :: PLANT == LOOK_BEFORE_BELL -> seen = bell
        :: else
        fi;
        if
        :: looks == 2 -> target++
        :: else ->
            atomic {
                if
                :: bell == seen || PLANT == SLEEP_BLINDLY -> asleep = true
                :: else
                fi
            }
            !asleep
        fi
    od
}

active [PEERS] proctype peer() {
    byte posts, me = _pid - 1;

    do
    :: posts == POSTS -> break
    :: else ->
        if
        :: PLANT == BELL_BEFORE_FLAG -> bell++; asleep = false; flag[me]++
        :: else -> flag[me]++; bell++; asleep = false
        fi;
        posts++
    od
}
