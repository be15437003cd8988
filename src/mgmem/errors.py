"""The one error that bad input raises."""


class UsageError(ValueError):
    """What was given can not work; the message says what was given, what is allowed, what to do.

    The command line prints it as one line and ends with exit code 2.
    """
