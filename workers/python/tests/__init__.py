import logging

# What handlers fail with on purpose is no news.
logging.getLogger("sagad").addHandler(logging.NullHandler())
logging.getLogger("sagad").propagate = False
logging.getLogger("asyncio").setLevel(logging.ERROR)
