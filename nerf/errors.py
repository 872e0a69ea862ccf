"""The errors that a user of the scripts meets, each with what can be done about it."""

import errno

OUT_OF_MEMORY = "this machine is out of memory; close other programs that use it, and give the command again."


class UserError(ValueError):
    """A bad setting or a bad input file.

    The message is one or two sentences: the file or setting at fault, what was found there, what was expected
    and the remedy. Scripts print it to stderr without a traceback and exit with status 2.
    """


class NoViews(UserError):
    """A scene has no view in a split. found: that alone, without the remedy of a command that scores."""

    def __init__(self, found: str, remedy: str = "") -> None:
        super().__init__(f"{found}{remedy}")
        self.found = found


class TrainingStopped(RuntimeError):
    """Training cannot go on; the message says after which step and why."""

    remedy: str  # what to change


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is exhausted: Python's, PyTorch's on either device, or a thread's."""
    words = ("out of memory", "can't allocate memory", "not enough memory", "can't start new thread")
    refused = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    return refused or any(word in str(error) for word in words)


def is_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from or while answering, says that memory is exhausted."""
    return error is not None and (
        is_out_of_memory(error) or is_of_memory(error.__cause__) or is_of_memory(error.__context__)
    )
