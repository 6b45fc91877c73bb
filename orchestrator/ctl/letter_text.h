/* Dead letters as text and as JSON. Prints nothing. Any thread. */
#ifndef CTL_LETTER_TEXT_H
#define CTL_LETTER_TEXT_H

#include "base/err.h"
#include "ctl/where_text.h"

#include <jansson.h>
#include <saga/v1/kafka.pb-c.h>

extern const char *const letter_headers[];
enum { LETTER_COLUMNS = 7 };
/* A row of a table with those headers. */
void letter_add_row(struct table *table, const Saga__V1__DeadLetter *letter, int64_t now_ms);
/* One letter with its bytes; those beyond `most` are cut (0: none is). True: something was cut. */
bool letter_write(const Saga__V1__DeadLetter *letter, size_t most, const struct where_view *view,
                  struct buf *out);
/* In two lines: where it stands, what is wrong with it, and the command that shows it. */
void letter_write_short(const Saga__V1__DeadLetter *letter, const struct where_view *view,
                        struct buf *out);
/* Bytes are base64; beside them, where they are text, "keyText", "valueText" and, in headers,
 * "nameText". The caller owns *ret. */
MUST_USE int letter_json(const Saga__V1__DeadLetter *letter, json_t **ret, struct err *err);

#endif
