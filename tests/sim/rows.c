#include "sim/rows.h"

#include "sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(void)
{
    fputs("the simulator is out of memory\n", stderr);
    abort();
}

void *rows_zeroed(size_t count, size_t size)
{
    void *at = mem_calloc(count ? count : 1, size);
    if (!at)
        out_of_memory();
    return at;
}

char *rows_text(struct world *world, const char *text)
{
    if (!text || world)
        return text ? world_text(world, text) : NULL;
    char *copy = mem_strdup(text);
    if (!copy)
        out_of_memory();
    return copy;
}

struct bytes rows_bytes(struct world *world, const struct bytes *bytes)
{
    if (!bytes->size)
        return (struct bytes){ NULL, 0 };
    struct bytes copy = { world ? world_alloc(world, bytes->size) : rows_zeroed(bytes->size, 1),
                          bytes->size };
    memcpy(copy.data, bytes->data, bytes->size);
    return copy;
}

struct journal_entry rows_entry(struct world *world, const struct journal_entry *entry)
{
    struct journal_entry copy = *entry;
    copy.worker = rows_text(world, entry->worker);
    copy.error_code = rows_text(world, entry->error_code);
    copy.error_message = rows_text(world, entry->error_message);
    copy.actor = rows_text(world, entry->actor);
    copy.signal_id = rows_text(world, entry->signal_id);
    copy.output = rows_bytes(world, &entry->output);
    return copy;
}

struct saga_row rows_row(struct world *world, const struct saga_row *row)
{
    struct saga_row copy = *row;
    copy.namespace_ = rows_text(world, row->namespace_);
    copy.definition = rows_text(world, row->definition);
    copy.saga_id = rows_text(world, row->saga_id);
    copy.park_code = rows_text(world, row->park_code);
    copy.park_message = rows_text(world, row->park_message);
    copy.labels = rows_text(world, row->labels);
    copy.input = rows_bytes(world, &row->input);
    return copy;
}
