/* The journal protocol: two nodes whose copies may be stale, one saga, one database.
 *
 * One step of the model is one transaction, one visit of a worker at the participant, or one thing
 * that happens to time, nodes or connections. README.md says which statement and function of the
 * code each part stands for, and what is left out. run.sh sets the switches:
 *
 *   JOIN, CALLS or FAILOVER   which model (below)
 *   REPEATS                   so many operations may be leased a second time
 *   INCIDENTS                 so many rare things happen, of those that the model has
 *   FAILOVERS, LOST           so many failovers; each loses one transition, or up to LOST of them
 *   SYNCHRONOUS               ... or none, since the standby has confirmed them all
 *   STURDY                    workers do not die, and no task is lost on its way
 *   MUTANT_...                one rule of the protocol is broken
 *
 * An assertion is named by the comment behind it. */

#ifndef REPEATS
#define REPEATS 0
#endif
#ifndef INCIDENTS
#define INCIDENTS 0
#endif

/* --- the three models ------------------------------------------------------------------------- */

#if defined(JOIN) /* steps 0 and 1 side by side, and step 2 that joins them */
#define STEPS 3
#define IN_DOUBT    /* an answer to COMMIT never comes */
#define RECONNECT   /* a connection is lost; also: the process, and it is back at once */
#define RETRY_LATER /* a worker reports RETRY */
#elif defined(CALLS) /* steps 0 and 1 side by side, and whatever comes from outside */
#define STEPS 2
#define CANCEL
#define DEADLINE
#define EXTENSION
#define LOST_STREAM
#define DEATH       /* a node never comes back: the other one adopts */
#define ADOPTION    /* the other one adopts, or gets a call, while the owner lives */
#elif defined(FAILOVER) /* steps 0 and 1 side by side, and the standby takes over */
#define STEPS 2
#endif

#define OPERATIONS (2 * STEPS)
#define NONE       15

/* An operation is a number: the action of a step, or its compensation. */
#define COMPENSATION(step) (STEPS + (step))
#define IS_ACTION(op)      ((op) < STEPS)

#if STEPS == 3
#define EACH_OPERATION(with) with(0) with(1) with(2) with(3) with(4) with(5)
#define ANY_OPERATION(is)    (is(0) || is(1) || is(2) || is(3) || is(4) || is(5))
#define EVERY_STEP(is)       (is(0) && is(1) && is(2))
#else
#define EACH_OPERATION(with) with(0) with(1) with(2) with(3)
#define ANY_OPERATION(is)    (is(0) || is(1) || is(2) || is(3))
#define EVERY_STEP(is)       (is(0) && is(1))
#endif

/* Positions and fences. As long as no entry is ever lost, all that matters of a position is whether
 * anybody has appended since the copy was loaded, and a lease is as well named by its try as by its
 * position; so the numbers, which tell apart orders that nobody asks for, are in FAILOVER alone. */
#ifdef FAILOVER
#define APPEND(saga)           saga.last++
#define FENCE(saga, op)        ((EPOCH << 5) + saga.last) /* (epoch << 40) + seq */
#define SEQ(fence)             ((fence) & 31)
#else
#define APPEND(saga)           skip
#define FENCE(saga, op)        saga.operation[op].tries
#endif

/* --- the database ----------------------------------------------------------------------------- */

mtype = { RUNNING, COMPENSATING, PARKED, SUCCEEDED, COMPENSATED };
/* Outcome of an operation's latest lease. OPEN: the column is NULL. */
mtype = { NOT_LEASED, OPEN, DONE, REJECTED, RETRY, EXPIRED, STREAM_LOST };

/* What the journal says of an operation: `struct attempts` of the core. */
typedef Attempts {
    byte fence;             /* of the latest lease; 0: none yet */
    mtype outcome;          /* of the latest lease, or of a late report that settled it */
    unsigned tries : 2;     /* leases so far */
    unsigned unsettled : 2; /* attempts that may have taken effect */
#ifdef LOST_STREAM
    bit extended;           /* lease_until of the latest lease was moved (EXTENSION) */
    bit lost;               /* a lease ended as STREAM_LOST: its worker may work on until ... */
    bit lost_extended;      /* ... its lease_until, which had been moved */
#endif
};

/* The saga's row and its journal, as far as decisions rest on them. */
typedef Saga {
#ifdef FAILOVER
    byte last;              /* position of the last entry */
#endif
    mtype state;
    mtype phase;
    byte parked_for;        /* the operation whose outcome is unknown; NONE: another reason */
    Attempts operation[OPERATIONS];
};

Saga db;

/* --- nodes, workers, the participant ---------------------------------------------------------- */

/* Node 0 is the owner: when the row names the other one, they change places (swap_nodes). They are
 * alike, so one of any two states that differ by their names is enough. */
Saga copies[2];
#define copy copies[n]
bit held[2];                /* it has one, and believes that it is the owner */
bit loads;                  /* node 1 may still load what it owned when it began to */
#ifndef FAILOVER
bit behind[2];              /* somebody has appended since */
#endif
#ifdef DEATH
bit dead[2];
#define ALIVE(n) (!dead[n])
#else
#define ALIVE(n) true
#endif

/* For each operation its newest holder, and at OLDER the one before. */
mtype = { IDLE, TASK, SAYS_DONE, SAYS_REJECTED, SAYS_RETRY };
typedef Worker {
    byte fence;
    mtype has;
#ifdef FAILOVER
    bit forgotten;          /* ghost: its lease was lost with the old primary */
#endif
};
#define OLDER(op) (OPERATIONS + (op))
Worker worker[2 * OPERATIONS];

/* The guard's rows. The effect of a step: none yet; there; undone, or blocked for ever. */
mtype = { NO_EFFECT, APPLIED, UNDONE };
mtype effect[STEPS];
byte seen[OPERATIONS];      /* the highest fence that was let in */

unsigned incidents : 3;
#define INCIDENT (incidents < INCIDENTS)

#ifdef FAILOVER
byte epoch;
Saga standby;               /* what is left of the database, once ... */
bit doomed;                 /* ... a commit was made that will be lost, ... */
unsigned to_lose : 2;       /* ... and so many more */
bit entered[OPERATIONS];    /* ghost: the newest holder was let in, and the older one is about */
#endif

/* --- rules of the core ------------------------------------------------------------------------ */

#define OUTCOME(saga, op)   saga.operation[op].outcome
#define IS_OPEN(saga, op)   (OUTCOME(saga, op) == OPEN)
#define IS_DONE(saga, op)   (OUTCOME(saga, op) == DONE)
#define IS_FAILED(saga, op)                                                                        \
    (OUTCOME(saga, op) == RETRY || OUTCOME(saga, op) == EXPIRED || OUTCOME(saga, op) == STREAM_LOST)
#define IS_TERMINAL(saga)   (saga.state == SUCCEEDED || saga.state == COMPENSATED)
#define IS_ACTIVE(saga, op) (saga.state == (IS_ACTION(op) -> RUNNING : COMPENSATING))
#define STEP_OF(op)         (IS_ACTION(op) -> (op) : (op) - STEPS)
#define NEEDS_UNDO(saga, step)                                                                     \
    ((IS_DONE(saga, step) || saga.operation[step].unsettled > 0) &&                                \
     !IS_DONE(saga, COMPENSATION(step)))

#if STEPS == 3
#define OPEN_ACTION(saga) (IS_OPEN(saga, 0) || IS_OPEN(saga, 1) || IS_OPEN(saga, 2))
#define OPEN_UNDO(saga)   (IS_OPEN(saga, 3) || IS_OPEN(saga, 4) || IS_OPEN(saga, 5))
#define ALL_DONE(saga)    (IS_DONE(saga, 0) && IS_DONE(saga, 1) && IS_DONE(saga, 2))
#define ALL_UNDONE(saga)  (!NEEDS_UNDO(saga, 0) && !NEEDS_UNDO(saga, 1) && !NEEDS_UNDO(saga, 2))
/* Step 2 comes after the others, and is taken back before them. */
#define IN_TURN(saga, op)                                                                          \
    ((op) == 2 -> IS_DONE(saga, 0) && IS_DONE(saga, 1)                                             \
               : (IS_ACTION(op) || (op) == COMPENSATION(2) || !NEEDS_UNDO(saga, 2)))
#else
#define OPEN_ACTION(saga) (IS_OPEN(saga, 0) || IS_OPEN(saga, 1))
#define OPEN_UNDO(saga)   (IS_OPEN(saga, 2) || IS_OPEN(saga, 3))
#define ALL_DONE(saga)    (IS_DONE(saga, 0) && IS_DONE(saga, 1))
#define ALL_UNDONE(saga)  (!NEEDS_UNDO(saga, 0) && !NEEDS_UNDO(saga, 1))
#define IN_TURN(saga, op) true
#endif

/* saga_end_input */
#define IS_END_DUE(saga)                                                                           \
    ((saga.state == RUNNING && ALL_DONE(saga)) ||                                                  \
     (saga.state == COMPENSATING && !OPEN_ACTION(saga) && !OPEN_UNDO(saga) && ALL_UNDONE(saga)))

/* The budget of repeats is the saga's, to keep the model small. */
#define IS_REPEATED(saga, op) (saga.operation[op].tries > 1)
#if STEPS == 3
#define REPEATED(saga)                                                                             \
    (IS_REPEATED(saga, 0) + IS_REPEATED(saga, 1) + IS_REPEATED(saga, 2) + IS_REPEATED(saga, 3) +   \
     IS_REPEATED(saga, 4) + IS_REPEATED(saga, 5))
#else
#define REPEATED(saga)                                                                             \
    (IS_REPEATED(saga, 0) + IS_REPEATED(saga, 1) + IS_REPEATED(saga, 2) + IS_REPEATED(saga, 3))
#endif
#define HAS_TRY(saga, op)                                                                          \
    (saga.operation[op].tries == 0 ||                                                              \
     (saga.operation[op].tries == 1 && REPEATED(saga) < REPEATS))
#define IS_SPENT(saga, op)                                                                         \
    (IS_ACTIVE(saga, op) && IS_FAILED(saga, op) && !HAS_TRY(saga, op) &&                           \
     (IS_ACTION(op) || NEEDS_UNDO(saga, STEP_OF(op))))

/* saga_grantable. The steps that run side by side have the same rules: let 0 be the one that is
 * leased first (until a failover has forgotten that). */
#ifdef FAILOVER
#define ZERO_IS_FIRST(saga, op) ((op) != 1 || saga.operation[0].tries > 0 || epoch > 0)
#else
#define ZERO_IS_FIRST(saga, op) ((op) != 1 || saga.operation[0].tries > 0)
#endif
#define MAY_GRANT(saga, op)                                                                        \
    (IS_ACTIVE(saga, op) && (OUTCOME(saga, op) == NOT_LEASED || IS_FAILED(saga, op)) &&            \
     HAS_TRY(saga, op) && IN_TURN(saga, op) && ZERO_IS_FIRST(saga, op) &&                          \
     (IS_ACTION(op) || (NEEDS_UNDO(saga, STEP_OF(op)) && !OPEN_ACTION(saga))))

/* saga_late_resolves: the latest attempt was given up, and nothing rests on "maybe" yet. */
#define LATE_RESOLVES(saga, op)                                                                    \
    ((OUTCOME(saga, op) == EXPIRED || OUTCOME(saga, op) == STREAM_LOST) && !IS_TERMINAL(saga) &&   \
     (!IS_ACTION(op) || OUTCOME(saga, COMPENSATION(STEP_OF(op))) == NOT_LEASED))

/* --- a decision ------------------------------------------------------------------------------- */

/* `struct transition`. Empty between two steps of the model. */
mtype = { REPORT, EXPIRY, STREAM_DIED, ROOM, SPENT, END_DUE, CANCEL_CALL, DEADLINE_DUE, REFUSAL };
mtype event;                /* what is decided about ... */
unsigned op : 4;            /* ... this operation */
unsigned who : 4;           /* REPORT: by this worker */
mtype from_state, from_phase; /* where the copy stood */
#ifdef FAILOVER
byte from_last;
#endif
bit finishes;               /* the open lease of the operation gets `outcome` */
mtype outcome;
bit over;                   /* EXPIRED: by the database's clock, lease_until is over */
bit settles;                /* entry LATE_REPORT: its lost lease is settled, as `outcome` */
bit resumes;                /* entry RESUME */
bit compensates;            /* entry COMPENSATE: the change of phase */
bit parks;                  /* entry PARK ... */
bit unknown;                /* ... for the operation's unknown outcome */
bit grants;                 /* entry LEASE ... */
unsigned granted : 3;       /* ... of this operation */
bit owns;                   /* it has made node 1 the owner: they change places afterwards */
bit ends;                   /* the row becomes terminal; alone: entry END */
bit acks;                   /* the report is acknowledged afterwards */
bit spent;                  /* the definition says what follows */
bit aside;                  /* nothing to commit, nothing to answer */
bit durable;                /* the answer of the database */
byte i;

inline end_decision() {
    if
    :: owns -> swap_nodes()
    :: else
    fi;
    owns = 0;
    event = 0;
    op = 0;
    who = 0;
#ifdef FAILOVER
    from_last = 0;
#endif
    from_state = 0;
    from_phase = 0;
    finishes = 0;
    outcome = 0;
    over = 0;
    settles = 0;
    resumes = 0;
    compensates = 0;
    parks = 0;
    unknown = 0;
    grants = 0;
    granted = 0;
    ends = 0;
    acks = 0;
    spent = 0;
    aside = 0;
    durable = 0
}

/* The facts are applied to the copy, as if committed, and by write() to the database. */
inline apply_finish(saga) {
    saga.operation[op].outcome = outcome;
    if
    :: outcome == DONE -> saga.operation[op].unsettled = 0
    :: outcome == EXPIRED -> saga.operation[op].unsettled++
    :: outcome == STREAM_LOST ->
        saga.operation[op].unsettled++;
#ifdef LOST_STREAM
        saga.operation[op].lost = 1;
        saga.operation[op].lost_extended = saga.operation[op].extended
#endif
    :: else
    fi
}

inline apply_entries(saga) {
    if
    :: settles ->
        APPEND(saga);
        saga.operation[op].outcome = outcome;
        saga.operation[op].unsettled = (outcome == DONE -> 0 : saga.operation[op].unsettled - 1)
    :: else
    fi;
    if
    :: resumes ->
        APPEND(saga);
        saga.state = saga.phase;
        saga.parked_for = NONE
    :: else
    fi;
    if
    :: compensates ->
        APPEND(saga);
        saga.phase = COMPENSATING;
        saga.parked_for = NONE;
        if
        :: saga.state == RUNNING || event == CANCEL_CALL -> saga.state = COMPENSATING
        :: else /* PARKED: it will turn back */
        fi
    :: else
    fi;
    if
    :: parks ->
        APPEND(saga);
        saga.state = PARKED;
        saga.parked_for = (unknown -> op : NONE)
    :: else
    fi
}

#ifdef MUTANT_NO_EPOCH
#define EPOCH 0
#else
#define EPOCH epoch
#endif

inline apply_grant(saga) {
    APPEND(saga);
    saga.operation[granted].tries++;
    saga.operation[granted].outcome = OPEN;
    saga.operation[granted].fence = FENCE(saga, granted);
#ifdef LOST_STREAM
    saga.operation[granted].extended = 0;
#endif
    skip
}

inline apply_end(saga) {
    if
    :: !finishes && !settles && !resumes && !compensates -> APPEND(saga) /* entry END */
    :: else
    fi;
    saga.state = (saga.state == RUNNING -> SUCCEEDED : COMPENSATED);
    saga.phase = saga.state
}

inline copy_saga(to, from) {
#ifdef FAILOVER
    to.last = from.last;
#endif
    to.state = from.state;
    to.phase = from.phase;
    to.parked_for = from.parked_for;
    i = 0;
    do
    :: i < OPERATIONS ->
        to.operation[i].fence = from.operation[i].fence;
        to.operation[i].outcome = from.operation[i].outcome;
        to.operation[i].tries = from.operation[i].tries;
        to.operation[i].unsettled = from.operation[i].unsettled;
#ifdef LOST_STREAM
        to.operation[i].extended = from.operation[i].extended;
        to.operation[i].lost = from.operation[i].lost;
        to.operation[i].lost_extended = from.operation[i].lost_extended;
#endif
        i++
    :: else -> break
    od;
    i = 0
}

inline clear_saga(saga) {
#ifdef FAILOVER
    saga.last = 0;
#endif
    saga.state = 0;
    saga.phase = 0;
    saga.parked_for = 0;
    i = 0;
    do
    :: i < OPERATIONS ->
        saga.operation[i].fence = 0;
        saga.operation[i].outcome = 0;
        saga.operation[i].tries = 0;
        saga.operation[i].unsettled = 0;
#ifdef LOST_STREAM
        saga.operation[i].extended = 0;
        saga.operation[i].lost = 0;
        saga.operation[i].lost_extended = 0;
#endif
        i++
    :: else -> break
    od;
    i = 0
}

#define SWAP(pair)    i = pair[0]; pair[0] = pair[1]; pair[1] = i;
#define SWAP_OF(part) i = copies[0].part; copies[0].part = copies[1].part; copies[1].part = i;
#ifdef LOST_STREAM
#define SWAP_LOST(k)                                                                               \
    SWAP_OF(operation[k].extended) SWAP_OF(operation[k].lost) SWAP_OF(operation[k].lost_extended)
#else
#define SWAP_LOST(k)
#endif
#define SWAP_OPERATION(k)                                                                          \
    SWAP_OF(operation[k].fence) SWAP_OF(operation[k].outcome) SWAP_OF(operation[k].tries)          \
    SWAP_OF(operation[k].unsettled) SWAP_LOST(k)

/* Node 1 becomes the owner. Who was it and has no copy may be loading one. */
inline swap_nodes() {
    SWAP(held)
    SWAP_OF(state)
    SWAP_OF(phase)
    SWAP_OF(parked_for)
    EACH_OPERATION(SWAP_OPERATION)
#ifdef FAILOVER
    SWAP_OF(last)
#else
    SWAP(behind)
#endif
#ifdef DEATH
    SWAP(dead)
#endif
    loads = (ALIVE(1) && !held[1]);
    i = 0;
    printf("nodes 0 and 1 change places\n")
}

/* --- the transaction -------------------------------------------------------------------------- */

/* An end tells of every effect, and none comes later. (What an asynchronous failover has forgotten
 * cannot be told.) */
#if defined(FAILOVER) && !defined(SYNCHRONOUS)
#define END_TELLS(step) true
#else
#define END_TELLS(step)                                                                            \
    ((db.state != COMPENSATED || effect[step] != APPLIED) &&                                       \
     (db.state != SUCCEEDED || effect[step] == APPLIED))
#endif
#define REFUSAL_TURNED(step) (OUTCOME(db, step) != REJECTED || db.phase != RUNNING)

/* Whenever a transaction has committed. */
inline check_durable() {
    assert(EVERY_STEP(REFUSAL_TURNED));                                     /* refusal_has_phase */
    assert(db.state != SUCCEEDED || ALL_DONE(db));                          /* end_is_whole */
    assert(db.state != COMPENSATED || ALL_UNDONE(db));                      /* end_is_whole */
    assert(!IS_TERMINAL(db) || (!OPEN_ACTION(db) && !OPEN_UNDO(db)));       /* end_is_whole */
    assert(EVERY_STEP(END_TELLS))                                           /* end_tells_effects */
}

inline check_append() {
#ifdef FAILOVER
    assert(db.last == from_last);                                           /* contiguous */
#else
    behind[1 - n] = held[1 - n];
#endif
    assert(!IS_TERMINAL(db))                                                /* no_entry_after_end */
}

/* The node has waited for the lease_until that it knows of. */
#define LOST_IS_OVER(step)                                                                         \
    (!db.operation[step].lost || (copy.operation[step].lost &&                                     \
                                  copy.operation[step].lost_extended ==                            \
                                      db.operation[step].lost_extended))

inline check_grant() {
    assert(!IS_OPEN(db, granted));                                          /* one_lease */
    assert(!IS_DONE(db, granted) && OUTCOME(db, granted) != REJECTED);      /* outcome_is_final */
    assert(IN_TURN(db, granted));                                           /* in_turn */
    assert(!IS_ACTION(granted) || db.state == RUNNING);                     /* forward_in_phase */
    assert(IS_ACTION(granted) || db.state == COMPENSATING);                 /* undo_in_phase */
#ifdef LOST_STREAM
    assert(IS_ACTION(granted) || EVERY_STEP(LOST_IS_OVER));                 /* undo_beside_lease */
#endif
    assert(IS_ACTION(granted) || !OPEN_ACTION(db))                          /* undo_beside_lease */
}

inline dismiss(w) {
    worker[w].has = IDLE;
    worker[w].fence = 0;
#ifdef FAILOVER
    worker[w].forgotten = 0;
#endif
    skip
}

inline finish_in_db() {
    if
    :: finishes ->
        assert(outcome != EXPIRED || over);                                 /* expiry_after_time */
        apply_finish(db)
    :: else
    fi
}

inline grant_in_db() {
    if
    :: grants ->
        check_grant();
        apply_grant(db);
#ifdef FAILOVER
        assert(db.operation[granted].fence > worker[granted].fence);        /* fence_rises */
        assert(db.operation[granted].fence > worker[OLDER(granted)].fence); /* fence_rises */
        assert(db.operation[granted].fence > seen[granted]);                /* fence_rises */
        entered[granted] = 0;
#endif
        /* Who held it before is an older holder from now on. */
        if
        :: worker[granted].has != IDLE ->
            worker[OLDER(granted)].fence = worker[granted].fence;
            worker[OLDER(granted)].has = worker[granted].has;
#ifdef FAILOVER
            worker[OLDER(granted)].forgotten = worker[granted].forgotten;
#endif
            who = (acks && who == granted -> OLDER(granted) : who)
        :: else
        fi;
        dismiss(granted)
    :: else
    fi
}

inline end_in_db() {
    if
    :: ends ->
        assert(!IS_TERMINAL(db));                                           /* one_end */
        apply_end(db)
    :: else
    fi
}

/* Who changes the row owns it from then on: no other copy knows what is due now. */
inline own_in_db() {
    if
    :: n == 1 && (resumes || compensates || parks || ends) -> owns = true
    :: else
    fi
}

#ifdef MUTANT_NO_POSITION_CHECK
#define POSITION_IS_FREE true
#elif defined(FAILOVER)
#define POSITION_IS_FREE (db.last <= from_last) /* INSERT at from_last + 1 */
#else
#define POSITION_IS_FREE (!behind[n])
#endif
#define ROW_IS_AS_DECIDED (db.state == from_state && db.phase == from_phase)

/* The lease that is to be finished is found by its position alone. */
#ifdef FAILOVER
#define IS_AT_POSITION(k)                                                                          \
    (IS_OPEN(db, k) && SEQ(db.operation[k].fence) == SEQ(copy.operation[op].fence))
#else
#define IS_AT_POSITION(k)                                                                          \
    (IS_OPEN(db, k) && (k) == op && db.operation[k].fence == copy.operation[op].fence)
#endif

/* The statement that carries the transition (transition_stmt of store/write.c). `durable` is its
 * answer: whether all of it took effect. */
inline write() {
    durable = true;
    if
    :: finishes -> /* outcome IS NULL AND (NOT only_if_expired OR lease_until < now()) */
        durable = ANY_OPERATION(IS_AT_POSITION);
        assert(!durable || IS_AT_POSITION(op));                             /* finish_hits */
#ifndef MUTANT_NO_TIME_CHECK
        durable = (durable && (outcome != EXPIRED || over))
#endif
    :: else
    fi;
    if
    :: settles || resumes || compensates || parks || (ends && !finishes) ->
        /* phase: all of it or nothing */
        durable = (durable && ROW_IS_AS_DECIDED && POSITION_IS_FREE);
        if
        :: durable ->
            check_append();
            finish_in_db();
            apply_entries(db);
            grant_in_db();
            end_in_db();
            own_in_db()
        :: else
        fi
    :: else -> /* finish, grant, finish_grant, finish_end: what is finished stays so */
        if
        :: durable -> finish_in_db()
        :: else
        fi;
        durable = (durable && (!grants || POSITION_IS_FREE) && (!ends || ROW_IS_AS_DECIDED));
        if
        :: durable && grants ->
            check_append();
            grant_in_db()
        :: durable && ends -> end_in_db()
        :: durable && finishes && !grants && !ends ->
            durable = (n == 0) /* if it is another's by now: load, decide anew */
        :: else
        fi
    fi;
    if
    :: !aside ->
        printf("node %d: %e op %d outcome %e, grants %d (%d), ends %d: durable %d; %e\n",
               n, event, op, outcome, grants, granted, ends, durable, db.state)
    :: else
    fi;
    check_durable()
}

/* --- a worker at the participant -------------------------------------------------------------- */

#define HAS_REPORT(w) (worker[w].has != IDLE && worker[w].has != TASK)
#define REPORTED(w)                                                                                \
    (worker[w].has == SAYS_DONE -> DONE : (worker[w].has == SAYS_RETRY -> RETRY : REJECTED))
#define WAITS(k)      (worker[k].has != IDLE || worker[OLDER(k)].has != IDLE)

/* While a lease is open no other holder that counts is at its step (asserted), so it makes no
 * difference when in that time its worker does its work: here with its report, or when the lease
 * has ended. An older or a forgotten holder may come at any time, also after that. */
#define HAS_OPEN_LEASE(k, w) (IS_OPEN(db, k) && db.operation[k].fence == worker[w].fence)

#ifdef FAILOVER
#define IS_FORGOTTEN worker[who].forgotten
#else
#define IS_FORGOTTEN false
#endif

inline let_in() {
#ifdef FAILOVER
    assert(who == op || !entered[op]); /* guard_refuses_older */
    entered[op] = (entered[op] || (who == op && worker[OLDER(op)].has != IDLE));
#endif
    seen[op] = worker[who].fence
}

/* DUPLICATE and REFUSED come before any fence. */
inline forget_seen(step) {
    seen[step] = 0;
    seen[COMPENSATION(step)] = 0
}

inline visit_action() {
    if
    :: effect[op] == UNDONE -> /* REFUSED */
        worker[who].has = SAYS_REJECTED
    :: effect[op] == APPLIED -> /* DUPLICATE */
        worker[who].has = SAYS_DONE
    :: effect[op] == NO_EFFECT && seen[op] > worker[who].fence -> /* STALE */
        assert(who != op || IS_FORGOTTEN);                                  /* newest_gets_in */
        dismiss(who)
    :: effect[op] == NO_EFFECT && seen[op] <= worker[who].fence -> /* PROCEED */
        let_in();
        if
        :: worker[who].has == SAYS_DONE ->
            effect[op] = APPLIED;
#ifndef FAILOVER /* which may bring an older compensation */
            forget_seen(op);
#endif
            assert(END_TELLS(op))                                           /* end_tells_effects */
        :: else /* no_effect: a business no */
        fi
    fi
}

#ifdef FAILOVER
#define NEWER_WAS_HERE (seen[op] > worker[who].fence || seen[op - STEPS] > worker[who].fence)
#else
#define NEWER_WAS_HERE (seen[op] > worker[who].fence)
#endif
inline visit_undo() {
    if
    :: effect[op - STEPS] == UNDONE /* DUPLICATE */
    :: effect[op - STEPS] != UNDONE && NEWER_WAS_HERE -> /* STALE */
        assert(who != op || IS_FORGOTTEN);                                  /* newest_gets_in */
        dismiss(who)
    :: effect[op - STEPS] != UNDONE && !NEWER_WAS_HERE -> /* PROCEED; EMPTY: it will never run */
        let_in();
        forget_seen(op - STEPS);
        effect[op - STEPS] = UNDONE
    fi
}

/* One transaction there: the guard (sql/guard), then the effect. */
inline visit() {
    if
    :: IS_ACTION(op) -> visit_action()
    :: else -> visit_undo()
    fi
}

inline choose_word() {
    if
    :: worker[who].has = SAYS_DONE
    :: IS_ACTION(op) -> worker[who].has = SAYS_REJECTED
    fi
}

/* --- what a node decides ---------------------------------------------------------------------- */

inline drop_copy() {
    held[n] = 0;
#ifndef FAILOVER
    behind[n] = 0;
#endif
    clear_saga(copy)
}

/* A lease ends (decide_ending). */
inline decide_ending() {
    finishes = true;
    apply_finish(copy);
    if
    :: outcome == REJECTED && copy.phase == RUNNING ->
#ifndef MUTANT_REFUSAL_IN_TWO_COMMITS
        compensates = true
#else
        skip
#endif
    :: outcome != REJECTED && outcome != DONE -> spent = IS_SPENT(copy, op)
    :: else
    fi
}

/* A report about the latest lease, which was given up (late_settled). */
inline decide_late() {
    settles = true;
    resumes = (copy.state == PARKED && copy.parked_for == op &&
               (outcome != RETRY || copy.operation[op].unsettled == 1));
    compensates = (outcome == REJECTED && copy.phase == RUNNING)
}

#define IS_KNOWN (copy.operation[op].fence == worker[who].fence)
#ifdef FAILOVER
#define IS_BEYOND_COPY (SEQ(worker[who].fence) > copy.last && copy.last < db.last)
#else
#define IS_BEYOND_COPY (worker[who].fence > copy.operation[op].fence)
#endif

/* A worker's report (saga_on_report, decide_late). */
inline decide_report() {
    outcome = REPORTED(who);
    acks = true;
    if
    :: IS_KNOWN && IS_OPEN(copy, op) -> decide_ending()
    :: IS_KNOWN && OUTCOME(copy, op) == outcome -> skip /* DUPLICATE: first what follows, if due */
    :: IS_KNOWN && OUTCOME(copy, op) != outcome && LATE_RESOLVES(copy, op) -> decide_late()
#ifndef MUTANT_UNSEEN_IS_STALE
    :: !IS_KNOWN && IS_BEYOND_COPY -> /* a lease that this copy does not know: load first */
        aside = true;
        drop_copy()
#endif
    :: else -> /* STALE */
        assert(!HAS_OPEN_LEASE(op, who));                                   /* holder_is_heard */
        aside = true;
        dismiss(who)
    fi
}

inline decide() {
#ifdef FAILOVER
    from_last = copy.last;
#endif
    from_state = copy.state;
    from_phase = copy.phase;
    if
    :: event == REPORT -> decide_report()
    :: event == EXPIRY ->
        outcome = EXPIRED;
        decide_ending()
    :: event == STREAM_DIED ->
        outcome = STREAM_LOST;
        decide_ending()
    :: event == SPENT || event == DEADLINE_DUE -> spent = true
    :: event == REFUSAL || event == CANCEL_CALL -> compensates = (copy.phase == RUNNING)
    :: else /* ROOM, END_DUE: see below */
    fi
}

/* What the definition says (on_unknown, on_exhausted, on_deadline). */
#define IS_FOR_ACTION (event == DEADLINE_DUE || IS_ACTION(op))
inline choose_policy() {
    if
    :: spent && IS_FOR_ACTION -> compensates = true
#ifdef FAILOVER
    :: spent && !IS_FOR_ACTION -> parks = true
#else
    :: spent -> parks = true
#endif
    :: !spent
    fi
}

/* The end joins the transition that makes it due (change_close). */
inline close_decision() {
    unknown = (parks && event != DEADLINE_DUE && copy.operation[op].unsettled > 0);
    apply_entries(copy);
    ends = (!aside && IS_END_DUE(copy));
    if
    :: ends -> apply_end(copy)
    :: else
    fi
}

/* A worker may have room for what comes next: its lease joins the transition (grant_try). */
#ifdef MUTANT_LOST_STREAM_NOT_LOADED
#define KNOWS_TOO_LITTLE false
#else
#define KNOWS_TOO_LITTLE (event == STREAM_DIED)
#endif
#define CHOOSE(k)                                                                                  \
    :: !aside && !ends && MAY_GRANT(copy, k) && !KNOWS_TOO_LITTLE -> grants = true; granted = k
inline choose_grant() {
    if
    EACH_OPERATION(CHOOSE)
    :: event != ROOM
    fi
}

/* What is acknowledged is durable, and so is what follows from it. */
inline check_ack() {
    assert(outcome == RETRY || (db.operation[op].fence == worker[who].fence &&
                                OUTCOME(db, op) == outcome));               /* ack_is_durable */
    assert(outcome != REJECTED || db.phase != RUNNING);                     /* ack_is_durable */
#ifdef FAILOVER
    assert(!worker[who].forgotten)                                          /* stale_is_refused */
#else
    assert(who == op || !finishes || (grants && granted == op))             /* stale_is_refused */
#endif
}

/* Only after the commit: tasks, acknowledgements, answers (transition_ok). */
inline let_effects_out() {
    if
    :: grants ->
        apply_grant(copy);
        worker[granted].fence = copy.operation[granted].fence;
        worker[granted].has = TASK
    :: else
    fi;
    if
    :: acks ->
        check_ack();
        dismiss(who)
    :: else
    fi;
    assert(event != CANCEL_CALL || db.phase != RUNNING);                    /* ack_is_durable */
#ifndef MUTANT_LOST_STREAM_NOT_LOADED
    if
    :: event == STREAM_DIED -> drop_copy() /* its lease may have been extended elsewhere */
    :: else
    fi
#endif
}

/* --- failover --------------------------------------------------------------------------------- */

#ifdef FAILOVER
#define CAN_BE_LOST (epoch < FAILOVERS && !doomed && !aside)

/* The leases that the new primary does not know. */
#define FORGET(k, w)                                                                               \
    worker[w].forgotten = (worker[w].has != IDLE && worker[w].fence != db.operation[k].fence);
#define FORGET_BOTH(k) FORGET(k, k) FORGET(k, OLDER(k))

/* The standby takes over. A copy dies with the connection that it was loaded on. */
inline fail_over() {
    epoch++;
    if
    :: doomed ->
        copy_saga(db, standby);
        EACH_OPERATION(FORGET_BOTH)
        clear_saga(standby);
        doomed = 0
    :: else
    fi;
#ifndef MUTANT_COPIES_KEPT
    held[0] = 0;
    held[1] = 0;
    loads = 0;
    clear_saga(copies[0]);
    clear_saga(copies[1]);
#endif
    printf("failover: %e\n", db.state)
}

inline choose_loss() {
    if
    :: doomed -> to_lose = (durable && !aside -> to_lose - 1 : to_lose)
#ifndef SYNCHRONOUS
    :: CAN_BE_LOST && durable ->
        doomed = 1;
        select (to_lose : 0 .. LOST - 1)
#endif
    :: !doomed -> d_step { clear_saga(standby) }
    fi
}
#endif

/* --- a node ----------------------------------------------------------------------------------- */

#define DRIVES          (ALIVE(n) && held[n])
#define NOW(what, k, w) event = what; op = k; who = w

#define ON_NEWEST(k)                                                                               \
    :: DRIVES && (HAS_REPORT(k) || (worker[k].has == TASK && HAS_OPEN_LEASE(k, k))) ->             \
        NOW(REPORT, k, k)
/* (After a failover the older one's lease may be open again.) */
#define ON_OLDER(k)                                                                                \
    :: DRIVES && (HAS_REPORT(OLDER(k)) ||                                                          \
                  (worker[OLDER(k)].has == TASK && HAS_OPEN_LEASE(k, OLDER(k)))) ->                \
        NOW(REPORT, k, OLDER(k))
/* The node's clock may be ahead: the database says whether lease_until is over. */
#define ON_EXPIRY(k)                                                                               \
    :: DRIVES && IS_OPEN(copy, k) -> NOW(EXPIRY, k, k); over = true                                \
    :: DRIVES && IS_OPEN(copy, k) -> NOW(EXPIRY, k, k)
#define ON_SPENT(k)   :: DRIVES && IS_SPENT(copy, k) -> NOW(SPENT, k, k)
#define HAS_ROOM(k)   MAY_GRANT(copy, k)
#define ON_STREAM_DIED(k)                                                                          \
    :: DRIVES && INCIDENT && IS_OPEN(copy, k) -> incidents++; NOW(STREAM_DIED, k, k)
#define ON_REFUSAL(k)                                                                              \
    :: DRIVES && OUTCOME(copy, k) == REJECTED && copy.phase == RUNNING -> NOW(REFUSAL, k, k)

inline stop_loading() {
    loads = (loads && n == 0)
}

#define MAY_TAKE (n == 1 && ALIVE(n) && !IS_TERMINAL(db))
inline take_saga() {
    printf("node %d takes the saga\n", n);
    drop_copy();
    swap_nodes()
}

inline load_saga() {
    printf("node %d loads\n", n);
    copy_saga(copy, db);
    held[n] = 1;
    stop_loading()
}

proctype node(bit n) {
end:
    do
    /* A report arrives at a node that is not the owner: UPDATE saga SET owner = me ... */
    :: d_step { MAY_TAKE && !held[n] && !loads && ANY_OPERATION(WAITS) -> take_saga() }
#ifdef DEATH
    :: d_step { MAY_TAKE && dead[0] -> take_saga() }
#endif
#ifdef ADOPTION
    :: d_step { MAY_TAKE && INCIDENT -> incidents++; take_saga() }
#endif
    /* ... and then it is loaded. So is whatever a node owns and has not in memory. */
    :: d_step {
        ALIVE(n) && !held[n] &&
        (n == 0 || loads || (IS_TERMINAL(db) && ANY_OPERATION(WAITS))) -> load_saga()
       }
    :: d_step { n == 1 && loads -> loads = 0 }
    /* Something happens: the core decides, the store writes, the effects go out. */
    :: atomic {
        if
        EACH_OPERATION(ON_NEWEST)
        EACH_OPERATION(ON_OLDER)
        EACH_OPERATION(ON_EXPIRY)
        EACH_OPERATION(ON_SPENT)
        :: DRIVES && ANY_OPERATION(HAS_ROOM) -> NOW(ROOM, 0, 0)
        :: DRIVES && IS_END_DUE(copy) -> NOW(END_DUE, 0, 0)
#ifdef CANCEL
        :: DRIVES && INCIDENT && copy.phase == RUNNING -> incidents++; NOW(CANCEL_CALL, 0, 0)
#endif
#ifdef DEADLINE
        :: DRIVES && INCIDENT && copy.state == RUNNING && !ALL_DONE(copy) ->
            incidents++;
            NOW(DEADLINE_DUE, 0, 0)
#endif
#ifdef LOST_STREAM
        EACH_OPERATION(ON_STREAM_DIED)
#endif
#ifdef MUTANT_REFUSAL_IN_TWO_COMMITS
        EACH_OPERATION(ON_REFUSAL)
#endif
        fi;
        if
        :: event == REPORT && worker[who].has == TASK ->
            choose_word();
            d_step { visit() }
        :: else
        fi;
        d_step { decide() };
        choose_policy();
        d_step { close_decision() };
        choose_grant();
#ifdef FAILOVER
        if
        :: CAN_BE_LOST -> d_step { copy_saga(standby, db) }
        :: else
        fi;
#endif
        d_step { write() };
#ifdef FAILOVER
        choose_loss();
#endif
        if
        :: aside -> d_step { end_decision() }
        :: !aside && durable -> d_step { let_effects_out(); end_decision() }
#ifndef STURDY
        :: !aside && durable && grants -> /* its task is lost, or its worker dies with it */
            d_step { let_effects_out(); dismiss(granted); end_decision() }
#endif
        :: !aside && !durable -> d_step { drop_copy(); end_decision() }
#ifdef IN_DOUBT
        :: !aside && durable && INCIDENT -> d_step { incidents++; drop_copy(); end_decision() }
#endif
        fi;
#ifdef FAILOVER
        if
        :: doomed && to_lose == 0 -> d_step { fail_over() }
        :: else
        fi
#endif
       }
#ifdef RECONNECT
    :: d_step { DRIVES && INCIDENT -> incidents++; drop_copy() }
#endif
#ifdef DEATH
    :: d_step {
        ALIVE(n) && INCIDENT && !dead[1 - n] ->
            incidents++;
            dead[n] = 1;
            drop_copy();
            stop_loading()
       }
#endif
    od
}

/* --- workers, beside what nodes hear from them ------------------------------------------------ */

#define AT_WORK(k)                                                                                 \
    :: worker[k].has == TASK && !HAS_OPEN_LEASE(k, k) -> op = k; who = k                           \
    :: worker[OLDER(k)].has == TASK && !HAS_OPEN_LEASE(k, OLDER(k)) -> op = k; who = OLDER(k)
/* With its lease open: as if its task had been lost. */
#define DIES(k)                                                                                    \
    :: worker[k].has != IDLE && !HAS_OPEN_LEASE(k, k) -> dismiss(k)                                \
    :: worker[OLDER(k)].has != IDLE && !HAS_OPEN_LEASE(k, OLDER(k)) -> dismiss(OLDER(k))
/* It could not even begin: no effect. */
#define PUTS_OFF(k)                                                                                \
    :: worker[k].has == TASK && INCIDENT -> incidents++; worker[k].has = SAYS_RETRY

proctype workers() {
end:
    do
    :: atomic {
        if
        EACH_OPERATION(AT_WORK)
        fi;
        choose_word();
        d_step {
            visit();
            op = 0;
            who = 0
        }
       }
#ifndef STURDY
    :: atomic {
        if
        EACH_OPERATION(DIES)
        fi
       }
#endif
#ifdef RETRY_LATER
    :: atomic {
        if
        EACH_OPERATION(PUTS_OFF)
        fi
       }
#endif
    od
}

/* --- what else happens ------------------------------------------------------------------------ */

/* UPDATE .. SET lease_until = .. WHERE .. outcome IS NULL, at any node: no entry, no position, and
 * nobody else's copy knows. */
#define EXTEND(k)                                                                                  \
    :: d_step { INCIDENT && IS_ACTION(k) && HAS_OPEN_LEASE(k, k) && !db.operation[k].extended ->   \
                incidents++; db.operation[k].extended = 1 }

proctype world() {
    do
#if INCIDENTS
    :: d_step { INCIDENT -> incidents = INCIDENTS } /* no more of them */
#endif
#ifdef SYNCHRONOUS
    :: d_step { epoch < FAILOVERS && !doomed -> fail_over() }
#endif
#ifdef EXTENSION
    EACH_OPERATION(EXTEND)
#endif
    :: timeout -> break
    od;
    assert(IS_TERMINAL(db) || db.state == PARKED)                           /* no_deadlock */
}

#define START(k)                                                                                   \
    db.operation[k].outcome = NOT_LEASED; worker[k].has = IDLE; worker[OLDER(k)].has = IDLE;

init {
    d_step {
        db.state = RUNNING;
        db.phase = RUNNING;
        db.parked_for = NONE;
        EACH_OPERATION(START)
        i = 0;
        do
        :: i < STEPS ->
            effect[i] = NO_EFFECT;
            i++
        :: else -> break
        od;
        i = 0
    }
    atomic {
        run node(0);
        run node(1);
        run workers();
        run world()
    }
}
