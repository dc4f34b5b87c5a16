"""Security headers, which restrict what browsers may do with the app, on every HTTP response."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Streamlit's page and ours have inline scripts; plotly and Streamlit write inline styles. All else is the server's own
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
    """ASGI middleware that adds the headers. frame_ancestors: CSP sources of the pages that may embed the app."""

    def __init__(self, app: ASGIApp, frame_ancestors: str) -> None:
        self._app, self._headers = app, headers(frame_ancestors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def headers(frame_ancestors: str) -> dict[str, str]:
    """Return the headers' values by name. Other sites get no referrer: a link to a view may contain the user's text."""
    policy = POLICY | {"frame-ancestors": frame_ancestors}
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
