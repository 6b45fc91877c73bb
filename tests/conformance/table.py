"""The table language x behaviour in workers/README.md, from what a run came to."""

import os

BEGIN, END = "<!-- conformance:begin -->\n", "<!-- conformance:end -->\n"
README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workers", "README.md")
MARKS = {"PASSED": "✓", "FAILED": "✗", "SKIPPED": "–"}
NAMES = {"c": "C", "go": "Go", "java": "Java", "python": "Python", "node": "Node"}


def table(behaviours, languages, cells):
    """`behaviours`: name: (group, what it proves, ...); `cells`: behaviour: {language: state}."""
    lines = ["| behaviour | " + " | ".join(NAMES[one] for one in languages) + " |",
             "|---|" + ":-:|" * len(languages)]
    for name, (_, proves, _) in behaviours.items():
        marks = [MARKS[cells.get(name, {}).get(language, "SKIPPED")] for language in languages]
        lines.append("| `%s`: %s | %s |" % (name, proves.replace("|", "\\|"), " | ".join(marks)))
    return "\n".join(lines) + "\n"


def parts(text):
    before, begin, rest = text.partition(BEGIN)
    between, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("workers/README.md has no place for the table: %s ... %s" % (BEGIN, END))
    return before + begin, between, end + after


def is_current(wanted):
    with open(README, encoding="utf-8") as file:
        return parts(file.read())[1] == wanted


def write(wanted):
    with open(README, encoding="utf-8") as file:
        before, _, after = parts(file.read())
    with open(README, "w", encoding="utf-8") as file:
        file.write(before + wanted + after)
