"""A compile database in which each source stands once, however many programs it is part of.

each_unit_once.py FROM TO: the folders of the two compile_commands.json
"""

import json
import os
import sys

with open(os.path.join(sys.argv[1], "compile_commands.json")) as commands:
    units = {unit["file"]: unit for unit in reversed(json.load(commands))}
os.makedirs(sys.argv[2], exist_ok=True)
with open(os.path.join(sys.argv[2], "compile_commands.json"), "w") as commands:
    json.dump(list(units.values()), commands)
