"""``python -m traceana``."""

from traceana.cli import run

if __name__ == "__main__":
    run()
