"""Backends for fusewright, each in one short file: docs/writing-a-backend.md walks through them."""
