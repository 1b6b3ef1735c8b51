"""The conformance kit's assertions show their values, although the kit is not a test module."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("sparktxn.testing.objectstore_tests")
