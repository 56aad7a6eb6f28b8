"""What the server answers of models that it can fetch: at /v1/pull of all, below it of one. No bodies are read."""

from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from liveasr import store
from liveasr.errors import WireError
from liveasr.stream.pulls import Pulls

PULL_METHODS = ("GET", "POST", "DELETE")
STATUSES = {
    "not_allowed": HTTPStatus.FORBIDDEN,
    "unknown_model": HTTPStatus.NOT_FOUND,
    "busy": HTTPStatus.CONFLICT,
    "shutdown": HTTPStatus.SERVICE_UNAVAILABLE,
}


def pull_routes() -> list[Route]:
    """The routes. `pulls` in the state of the application is its Pulls, or None where nothing may be fetched."""
    return [
        Route("/v1/pull", _models, methods=["GET"]),
        Route("/v1/pull/{model}", _model, methods=["GET", "POST", "DELETE"]),
    ]


async def _models(request: Request) -> Response:
    try:
        models = await _pulls(request).listed()
    except WireError as error:
        return _refusal(error)
    return JSONResponse({"models": msgspec.to_builtins(models)})


async def _model(request: Request) -> Response:
    name = request.path_params["model"]
    status = HTTPStatus.OK
    try:
        pulls = _pulls(request)
        if request.method == "POST":
            pulls.start(name, f"{request.client.host}:{request.client.port}" if request.client else None)
            status = HTTPStatus.ACCEPTED
        elif request.method == "DELETE":
            pulls.cancel(name)
        model = await pulls.described(name)
    except WireError as error:
        return _refusal(error)
    return JSONResponse(msgspec.to_builtins(model), status)


def _pulls(request: Request) -> Pulls:
    pulls: Pulls | None = request.app.state.pulls
    if pulls is None:
        raise WireError(
            "not_allowed",
            f"this server fetches no models (--allow-pull); on its computer: {store.download_command()}, then start it "
            "again",
        )
    return pulls


def _refusal(error: WireError) -> Response:
    return JSONResponse({"error": {"code": error.code, "message": str(error)}}, STATUSES[error.code])
