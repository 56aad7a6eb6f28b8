"""The process of the language model: `python -m liveasr.engines.llm_server LINK THREADS MODEL OFFSET`.

It loads llama.cpp, which nothing else in the program does, and has a thread and a context for each lane. It ends when
whoever started it is gone, in whatever way that happened.
"""

import os
import signal
import socket
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from liveasr.engines.llm import LanguageModel, LlmContext
from liveasr.engines.llm_wire import Begin, Failed, Ready, Request, Written, receive_request, send
from liveasr.errors import LiveasrError, ModelFileError


def main() -> None:
    """Serve until the link is closed.

    Arguments: number of the link's descriptor, threads, the model's file, and where in it the model begins.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this; its end is this one's end
    link = socket.socket(fileno=int(sys.argv[1]))
    greeting = Connection(os.dup(link.fileno()))
    try:
        model = LanguageModel(Path(sys.argv[3]), int(sys.argv[2]), int(sys.argv[4]))
    except LiveasrError as error:
        is_file = isinstance(error, ModelFileError)
        send(greeting, Failed(error.reason if isinstance(error, ModelFileError) else str(error), is_file))
        return
    send(greeting, Ready(model.width))
    while True:
        _, descriptors, _, _ = socket.recv_fds(link, 1, 1)
        if not descriptors:
            # Not sys.exit, which would wait for lanes that may be computing: nobody is left to hear them.
            os._exit(0)
        threading.Thread(target=_serve, args=(Connection(descriptors[0]), model), daemon=True).start()


def _serve(link: Connection, model: LanguageModel) -> None:
    """One lane, until its other side closes it."""
    context = LlmContext(model)
    try:
        while True:
            request = receive_request(link)
            try:
                token = _answer(context, model, request)
            except LiveasrError as error:
                send(link, Failed(str(error)))
            else:
                send(link, Written(token, model.piece(token), model.ends(token)))
    except (EOFError, OSError):
        context.close()
        link.close()


def _answer(context: LlmContext, model: LanguageModel, request: Request) -> int:
    if isinstance(request, Begin):
        before, after = model.tokenize(request.before), model.tokenize(request.after)
        return context.begin(before, request.embeddings(model.width), after, request.most_new)
    return context.next()


if __name__ == "__main__":
    main()
