"""A worker on the Python SDK whose handler does nothing but say DONE: in threads, or with --async in the
event loop.

worker.py --target ADDRESS --handler NAME --concurrency N [--async]
"""

import argparse

from sagad import Task, Worker


def nothing(task: Task) -> None:
    pass


async def nothing_async(task: Task) -> None:
    pass


parser = argparse.ArgumentParser()
parser.add_argument("--target", required=True)
parser.add_argument("--handler", required=True)
parser.add_argument("--concurrency", type=int, required=True)
parser.add_argument("--async", action="store_true", dest="is_async")
options = parser.parse_args()
worker = Worker([options.target], worker_id="noop-python", concurrency=options.concurrency)
worker.handle(options.handler, nothing_async if options.is_async else nothing)
worker.run(handle_signals=True)
