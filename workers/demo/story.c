#include "story.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void story_id_format(const struct story *story, int number, char ret_id[STORY_ID_SIZE])
{
    (void)snprintf(ret_id, STORY_ID_SIZE, "%s%06d", story->id_prefix, number); /* always fits */
}

int story_number_of(const struct story *story, int count, const char *id)
{
    size_t prefix = strlen(story->id_prefix);
    if (strncmp(id, story->id_prefix, prefix) != 0)
        return 0;
    char *end;
    long number = strtol(id + prefix, &end, 10);
    if (number < 1 || number > count)
        return 0;
    char canonical[STORY_ID_SIZE];
    story_id_format(story, (int)number, canonical);
    return strcmp(canonical, id) == 0 ? (int)number : 0;
}
