/* What the driver needs to know of a story to play it: its keys, its definitions, its inputs, and
 * what its ends are called. Plain data; any thread. */
#ifndef DEMO_STORY_H
#define DEMO_STORY_H

#include "base/buf.h"

#include <stdbool.h>

enum { STORY_ID_SIZE = 65 /* with the NUL */ };

struct story {
    const char *name;
    const char *id_prefix; /* "ord-": the keys are "ord-000001", ... */
    int count_max;
    const char *const *definitions;      /* NULL at the end */
    const char *succeeded, *compensated; /* in the words of the story */
    const char *(*definition_of)(int number, int count);
    void (*encode)(int number, int count, struct buf *buf); /* the input */
    /* It is left on purpose at a step that is tried for ever. NULL: none is. */
    bool (*stays)(int number, int count);
    const char *stays_at; /* that step */
};

void story_id_format(const struct story *story, int number, char ret_id[STORY_ID_SIZE]);
/* 1 to count; 0: the key is none of ours. */
int story_number_of(const struct story *story, int count, const char *id);

#endif
