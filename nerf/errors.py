"""The error for mistakes that the user of a script can mend."""


class UserError(ValueError):
    """A bad setting or a bad input file.

    The message is one or two sentences: the file or setting at fault, what was found there, what was expected
    and the remedy. Scripts print it to stderr without a traceback and exit with status 2.
    """
