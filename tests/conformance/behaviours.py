"""The list: importing this fills case.BEHAVIOURS, in the order in which it is shown."""

import behaviours_hello  # noqa: F401
import behaviours_outcomes  # noqa: F401
import behaviours_tasks  # noqa: F401
import behaviours_leases  # noqa: F401
import behaviours_drain  # noqa: F401
import behaviours_streams  # noqa: F401
import behaviours_nodes  # noqa: F401
import behaviours_load  # noqa: F401
