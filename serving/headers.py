"""What the server tells browsers they may do with the app: HTTP headers, on every answer."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Streamlit's page has scripts in it, and so have ours; plotly and Streamlit write styles. All else is the server's own
POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",  # not shown
    "font-src": "'self' data:",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
}


class Headers:
    """ASGI middleware. frame_ancestors: the pages that may show the app in a frame, as CSP names them."""

    def __init__(self, app: ASGIApp, frame_ancestors: str) -> None:
        self._app, self._headers = app, headers(frame_ancestors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def headers(frame_ancestors: str) -> dict[str, str]:
    """Their values by name. No other site is told an address here: a link to a view may hold its text."""
    policy = POLICY | {"frame-ancestors": frame_ancestors}
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
