"""A live, read-only view of run folders over HTTP."""
