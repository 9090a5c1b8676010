from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0), dict(N=2, M=2)]


def make(N, M):
    x0 = fill(0, (N, M, M))
    return [x0]


def f(x0):
    v1 = x0.narrow(-2, 0, 1)
    v1.view(-1)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
