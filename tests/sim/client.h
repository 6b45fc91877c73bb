/* Clients: they start sagas (again, too, and with other input under the same key), cancel, retry
 * and wait, at any node. What they were answered is judged when it leaves the engine; what never
 * came back is unknown to them. */
#ifndef SIM_CLIENT_H
#define SIM_CLIENT_H

#include "engine/engine.h"
#include "sim/timer.h"

struct world;
struct node;
struct call;

enum { KEYS_MAX = 24 };

struct business_key {
    const char *definition, *saga_id;
    const char *input;
    bool uid_known; /* a start told it */
    struct uuid uid;
};

struct clients {
    struct business_key keys[KEYS_MAX];
    size_t key_count;
    struct timer next; /* call */
    struct timer race; /* calls */
    struct business_key *raced;
    size_t open; /* calls without an answer */
    unsigned calls;
    int64_t every_ms;
};

void clients_open(struct world *world);
void clients_close(struct world *world);
void clients_start(struct world *world, struct node *node, struct business_key *key,
                   const char *input);
/* Somebody calls for the saga at every node, soon. */
void clients_race(struct world *world, const char *definition, const char *saga_id);
void clients_verb(struct world *world, struct node *node, struct business_key *key,
                  enum engine_verb_kind verb, int64_t timeout_ms);

#endif
