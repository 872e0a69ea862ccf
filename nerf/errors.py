"""The errors that a user of the scripts meets, each with what can be done about it."""


class UserError(ValueError):
    """A bad setting or a bad input file.

    The message is one or two sentences: the file or setting at fault, what was found there, what was expected
    and the remedy. Scripts print it to stderr without a traceback and exit with status 2.
    """


class TrainingStopped(RuntimeError):
    """Training cannot go on; the message says after which step and why."""

    remedy: str  # what to change


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is exhausted: Python's, PyTorch's on either device, or a thread's."""
    words = ("out of memory", "can't allocate memory", "not enough memory", "can't start new thread")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)
