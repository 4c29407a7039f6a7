"""Triton reads TRITON_INTERPRET when it is first imported, which torch may do for whichever test file comes first: it is
imported here, so that kernels run interpreted in any order of files."""

import os

os.environ["TRITON_INTERPRET"] = "1"
try:
    import triton  # noqa: F401
except ImportError:  # the tests of kernels then skip
    pass
finally:
    del os.environ["TRITON_INTERPRET"]
