"""placeholder"""


def classify(error):
    return None
