"""What every Python story shares: a named check, and an end that says how many held."""
import sys
import traceback

_passed, _failed = [], []


def check(name):
    """Runs the decorated function at once and records whether it held."""
    def run(story):
        try:
            story()
            _passed.append(name)
            print(f"  ok    {name}", flush=True)
        except Exception as problem:  # a failed story must not hide the ones after it
            _failed.append(name)
            print(f"  FAIL  {name}: {problem!r}", flush=True)
            traceback.print_exc()
        return story
    return run


def equal(actual, expected, what="value"):
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def end():
    print(f"{len(_passed)} passed, {len(_failed)} failed", flush=True)
    sys.exit(1 if _failed else 0)


def transfer(i):
    """A bank transfer: the record every story writes."""
    return f'{{"id":{i},"from":"acc-{i % 97}","to":"acc-{i % 89}","amount":{(i * 37) % 100000}}}'.encode()
