/* Faults of ours, switched on one at a time: each must be caught. Those of the store are here;
 * those of the engine and the core are patches of their sources, each built into a simulator of its
 * own (mutations/). Any thread. */
#ifndef SIM_MUTATION_H
#define SIM_MUTATION_H

enum mutation {
    MUTATION_NONE,
    MUTATION_NO_POSITION_CHECK,   /* an entry is inserted although its position is taken */
    MUTATION_REST_WITHOUT_FIRST,  /* further entries are inserted although the first one lost */
    MUTATION_NO_ROW_LOCK,         /* a decision does not ask in which state the saga is */
    MUTATION_OUTCOME_OVERWRITTEN, /* a lease that has its outcome gets another */
    MUTATION_REFUSAL_ALONE,       /* an outcome, and the decision that follows: two commits */
    MUTATION_EXPIRY_UNCHECKED,    /* the database does not look whether the lease ran out */
    MUTATION_COUNT
};

/* "no_position_check"; MUTATION_COUNT: no such name. */
const char *mutation_name(enum mutation mutation);
enum mutation mutation_parse(const char *name);

#endif
