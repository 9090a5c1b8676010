from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0), dict(N=0, M=1)]


def make(N, M):
    x0 = fill(0, (1 + M,))
    x1 = 0
    return [x0, x1]


def f(x0, x1):
    v0 = x0[x0 > x1]
    v1 = v0.squeeze()
    return (v1,)


if __name__ == "__main__":
    show(__file__)
