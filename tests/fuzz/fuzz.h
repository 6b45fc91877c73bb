/* What the fuzz targets share. A target is one LLVMFuzzerTestOneInput; what must hold whatever the
 * bytes are is FUZZ_CHECKed: a broken check ends the process, and libFuzzer keeps the input. */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include "base/err.h"
#include "base/mem.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
/* The call returns 0. */
#define FUZZ_OK(call, err)                                                                         \
    do {                                                                                           \
        if ((call) != 0) {                                                                         \
            (void)fprintf(stderr, "%s:%d: failed: %s: %s: %s\n", __FILE__, __LINE__, #call,        \
                          err_code_name((err)->code), (err)->msg);                                 \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* libFuzzer's two sides. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

/* Bytes read as a script: numbers, choices and pieces, all zero once they are used up. */
struct script {
    const uint8_t *data;
    size_t left;
};

static inline uint8_t script_byte(struct script *script)
{
    if (!script->left)
        return 0;
    script->left--;
    return *script->data++;
}

/* 0 to below - 1; below is at most 256. */
static inline unsigned script_choice(struct script *script, unsigned below)
{
    return script_byte(script) % below;
}

/* Any 64 bits, small numbers in few bytes: the first byte says how many follow. */
static inline int64_t script_number(struct script *script)
{
    unsigned head = script_byte(script);
    if (head < 128)
        return head;
    uint64_t value = 0;
    for (unsigned i = 0; i <= head % 8; i++)
        value = value << 8 | script_byte(script);
    return head & 64 ? -(int64_t)(value >> 1) : (int64_t)(value & INT64_MAX);
}

/* A piece of at most 65,535 bytes, borrowed; less when the script ends before. */
static inline const uint8_t *script_piece(struct script *script, size_t *ret_size)
{
    size_t size = script_byte(script);
    if (size == 255)
        size = (size_t)script_byte(script) << 8 | script_byte(script);
    if (size > script->left)
        size = script->left;
    const uint8_t *piece = script->data;
    script->data += size;
    script->left -= size;
    *ret_size = size;
    return piece;
}

/* From here on one allocation of ours fails, or from one on all of them; 0: none. */
static inline void fail_memory(uint8_t choice)
{
    mem_fail_at(choice % 64, choice >= 64 && choice < 128);
}

#endif
