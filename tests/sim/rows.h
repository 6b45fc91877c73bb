/* Deep copies of rows and entries: into the world's memory, or with mem_* for the engine. */
#ifndef SIM_ROWS_H
#define SIM_ROWS_H

#include "core/journal.h"

struct world;

/* world NULL: from mem_*; whoever runs out of memory ends the program. */
struct journal_entry rows_entry(struct world *world, const struct journal_entry *entry);
struct saga_row rows_row(struct world *world, const struct saga_row *row);
struct bytes rows_bytes(struct world *world, const struct bytes *bytes);
char *rows_text(struct world *world, const char *text);
/* Zeroed; from mem_*. */
void *rows_zeroed(size_t count, size_t size);

#endif
