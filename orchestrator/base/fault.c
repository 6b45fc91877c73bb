#include "base/fault.h"

void (*fault_hook)(const char *point);
