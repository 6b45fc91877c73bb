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

bool entry_is_asked(const struct journal_entry *entry)
{
    switch (entry->kind) {
    case ENTRY_RETRY:
    case ENTRY_SKIP:
    case ENTRY_ABANDON:
    case ENTRY_SIGNAL:
    case ENTRY_OPTIONS:
        return true;
    case ENTRY_COMPENSATE: /* about: it follows from a cancel that had to wait */
    case ENTRY_PENDING:
        return entry->reason == CAUSE_CANCELLED && !entry->about;
    case ENTRY_PARK:
        return entry->reason == PARK_SUSPENDED;
    case ENTRY_RESUME:
        return entry->about != 0;
    case ENTRY_RESOLVE: /* about: a probe found out */
        return entry->about == 0;
    case ENTRY_LEASE:
    case ENTRY_LATE_REPORT:
    case ENTRY_END:
    case ENTRY_PROBE:
    case ENTRY_MAYBE:
    case ENTRY_ACCEPT:
    case ENTRY_CONTINUE:
    case ENTRY_RECEIVE:
    case ENTRY_SUSPECT: /* a start, by a program; the takeover itself is in kafka_request */
    case ENTRY_KIND_COUNT:
        break;
    }
    return false;
}
