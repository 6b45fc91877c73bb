/* sagactl as people run it, against a rig, by the user "ada". Fails the test with what it printed.
 * thread: the test thread only. */
#ifndef SUPPORT_SAGACTL_H
#define SUPPORT_SAGACTL_H

#include "support/command.h"
#include "support/rig.h"

#include <jansson.h>

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* It exits so, and its output (stdout and stderr) holds all of `parts`; both end with NULL. */
void sagactl_expect(const struct rig *rig, int exit_code, const char *const *parts,
                    const char *const *words);
/* It exits with 0 and prints nothing but JSON, which the caller owns. */
json_t *sagactl_json(const struct rig *rig, const char *const *words);

#endif
