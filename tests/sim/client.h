/* Clients: they start sagas (again, too, and with other input under the same key), cancel, retry
 * and wait, at any node. Operators: they suspend, resume, skip, abandon, and settle what is unknown
 * by what the participant tells them once nothing is on its way any more. What they were answered
 * is judged when it leaves the engine; what never came back is unknown to them. */
#ifndef SIM_CLIENT_H
#define SIM_CLIENT_H

#include "engine/engine.h"
#include "sim/timer.h"

struct world;
struct node;
struct call;
struct db_saga;
struct look_at;

enum { KEYS_MAX = 24 };

struct business_key {
    const char *definition, *saga_id;
    const char *input;
    int64_t suspect_since_ms; /* by the database's clock; 0: nobody else has been at it */
    bool asked;               /* to start: now it is too late for another to have begun */
    bool uid_known;           /* a start told it */
    struct uuid uid;
};

struct clients {
    struct business_key keys[KEYS_MAX];
    size_t key_count;
    struct timer next; /* call */
    struct timer race; /* calls */
    struct business_key *raced;
    bool raced_to_resolve;
    size_t open; /* calls without an answer */
    unsigned calls;
    bool by_uid;           /* a scenario: the next call names its saga so */
    struct look_at *looks; /* what persons saw before they settled something */
    int64_t every_ms;
};

void clients_open(struct world *world);
void clients_close(struct world *world);
void clients_start(struct world *world, struct node *node, struct business_key *key,
                   const char *input);
/* A cancel at some node. */
void clients_cancel(struct world *world, const char *definition, const char *saga_id);
/* Somebody calls for the saga at every node, soon; or settles what is unknown of it. */
void clients_race(struct world *world, const char *definition, const char *saga_id,
                  bool to_resolve);
void clients_verb(struct world *world, struct node *node, struct business_key *key,
                  enum engine_verb_kind verb, int64_t timeout_ms);
/* A person has found out. operation: OPERATION_COUNT: not said. */
void clients_resolve(struct world *world, struct node *node, struct business_key *key,
                     const char *step, enum operation operation, bool happened);
/* Has another attempt been granted since the person looked, who says so in this entry? */
bool clients_looked_before(const struct world *world, const struct db_saga *saga,
                           const struct journal_entry *resolve);

#endif
