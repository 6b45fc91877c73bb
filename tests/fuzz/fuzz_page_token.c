/* Goal: a page token that was changed on its way is refused or names a place within bounds; one
 * that was not leads to the place that was put in. Method: the first byte chooses the kind and
 * whether the rest is a token as it comes, or a place of which a token is made, and then changed.
 */
#include "fuzz.h"
#include "rpc/request.h"

#include <string.h>

static const struct page_filter filter = { { 1, 2, 3, 4, 5, 6, 7, 8 } };
static const struct page_filter other_filter = { { 1, 2, 3, 4, 5, 6, 7, 9 } };

/* Reads a token; what it says must be what a token of the same place says. */
static void read_token(struct arena *arena, const char *token, enum page_kind kind)
{
    uint8_t place[PAGE_PLACE_MAX], again[PAGE_PLACE_MAX];
    size_t size = SIZE_MAX, size_again = SIZE_MAX;
    struct err err;
    int rc = page_token_read(token, kind, &filter, place, &size, &err);
    if (rc) {
        FUZZ_CHECK(rc == ERR_INVALID && strcmp(err.field, "page_token") == 0);
        return;
    }
    FUZZ_CHECK(size <= PAGE_PLACE_MAX);
    FUZZ_CHECK((size == 0) == (*token == '\0'));
    if (!size)
        return;
    char *made = page_token_make(arena, kind, &filter, place, size);
    FUZZ_CHECK(made);
    FUZZ_OK(page_token_read(made, kind, &filter, again, &size_again, &err), &err);
    FUZZ_CHECK(size_again == size && memcmp(place, again, size) == 0);
    FUZZ_CHECK(page_token_read(made, kind, &other_filter, again, &size_again, &err));
    enum page_kind other = kind == PAGE_SAGAS ? PAGE_JOURNAL : PAGE_SAGAS;
    FUZZ_CHECK(page_token_read(made, other, &filter, again, &size_again, &err));
}

static void make_token(struct arena *arena, struct script *script, enum page_kind kind)
{
    size_t change = script_byte(script), size = script->left;
    uint8_t change_to = script_byte(script);
    char *token = page_token_make(arena, kind, &filter, script->data, script->left);
    FUZZ_CHECK((token != NULL) == (script->left <= PAGE_PLACE_MAX));
    if (!token)
        return;
    if (size > 1)
        read_token(arena, token, kind);
    token[change % strlen(token)] = (char)change_to;
    read_token(arena, token, kind);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script script = { data, size };
    struct arena arena = { 0 };
    uint8_t head = script_byte(&script);
    enum page_kind kind = (enum page_kind)(PAGE_SAGAS + head % 3);
    if (head & 128) {
        make_token(&arena, &script, kind);
    } else {
        char *token = arena_alloc(&arena, script.left + 1);
        FUZZ_CHECK(token);
        memcpy(token, script.data, script.left);
        read_token(&arena, token, kind);
    }
    arena_done(&arena);
    return 0;
}
