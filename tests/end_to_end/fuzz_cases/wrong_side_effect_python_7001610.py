from fusewright.fuzz import show

LOG = []
MODE = "plain"
DYNAMIC = None
CALLS = [dict()]
STATE = ("LOG",)


def numbers():
    try:
        yield 1
    finally:
        LOG.append("closed")


def make():
    return []


def f():
    for _ in numbers():
        next()


def drive(f):
    try:
        return f()
    finally:
        LOG.append("left")


if __name__ == "__main__":
    show(__file__)
