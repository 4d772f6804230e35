"""Errors that a person should read."""


class HydraError(ValueError):
    """Something the user gave cannot be used.

    The message is one or two sentences: what was given, what was expected, what to do. The app shows it as
    it is, and the command line prints it on one line and exits with code 2.
    """


class Cancelled(Exception):
    """Raised by a progress callback to stop a long job; not an error, so not a :class:`HydraError`."""
