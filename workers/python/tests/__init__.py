import logging

from sagad.stream import keep_grpc

# What handlers fail with on purpose is no news.
logging.getLogger("sagad").addHandler(logging.NullHandler())
logging.getLogger("sagad").propagate = False
logging.getLogger("asyncio").setLevel(logging.ERROR)

keep_grpc()  # the tests of the guard fork, when other tests have just ended
