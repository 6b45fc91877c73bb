/* What an audit found wrong: a count, and the first of them as text. One thread. */
#ifndef DEMO_FAULTS_H
#define DEMO_FAULTS_H

#include "base/buf.h"
#include "story.h"

enum { FAULTS_SHOWN = 20 };

struct faults {
    int count;
    struct buf text; /* the first ones, a line each; owned */
};

/* `number`: of the key; 0: of the books as a whole. */
FMT(4, 5)
void faults_add(struct faults *faults, const struct story *story, int number, const char *fmt, ...);
/* Says how many there are beyond those in the text. */
void faults_print(const struct faults *faults);
static inline void faults_done(struct faults *faults)
{
    buf_done(&faults->text);
}

#endif
