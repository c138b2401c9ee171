"""Parsers, one file a form; imported as ``traceana.parsers`` only.

A second copy under the bare name would hold a second registry, hence the refusal below.
"""

if __name__ != "traceana.parsers":
    raise ImportError("import traceana.parsers, not parsers")
