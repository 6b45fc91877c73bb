#include "core/journal.h"

void journal_entry_done(struct journal_entry *entry)
{
    mem_free(entry->worker);
    mem_free(entry->output.data);
    mem_free(entry->error_code);
    mem_free(entry->error_message);
    mem_free(entry->actor);
    mem_free(entry->signal_id);
    *entry = (struct journal_entry){ 0 };
}

void saga_row_done(struct saga_row *row)
{
    mem_free(row->namespace_);
    mem_free(row->definition);
    mem_free(row->saga_id);
    mem_free(row->park_code);
    mem_free(row->park_message);
    mem_free(row->input.data);
    mem_free(row->labels);
    *row = (struct saga_row){ 0 };
}
