"""A user without a browser: sends Streamlit's server the messages of a browser, over the same websocket.

One message opens a page or sets a widget; the server answers with all elements of the page, and then that the script
has finished. The messages are protobuf: BackMsg to the server, ForwardMsg from it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from streamlit.proto.Alert_pb2 import Alert
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect

PATIENCE = 300  # seconds that a script may take
CONTROLS = ("checkbox", "button_group", "text_area", "button")


@dataclass(frozen=True)
class Switch:
    """A page, and the widget on it that is flipped: its key, and its two values as the page shows them, the initial
    one first.

    link: query parameters, such as "step=2", for a widget that is not there when the page is opened without them."""

    page: str
    key: str
    values: tuple[bool, bool] | tuple[str, str] = (True, False)
    link: str = ""


class Reader:
    """One visit of a user to a page. Raises RuntimeError if the page shows an error."""

    def __init__(self, socket: ClientConnection, switch: Switch, text: str, **link: str) -> None:
        self._socket, self._switch = socket, switch
        self._query = urlencode({"text": text} | dict(parse_qsl(switch.link)) | link)
        self._controls: dict[str, tuple[str, str]] = {}  # key -> id, and the id of its fragment
        self._turns, self._options = 0, set[str]()
        self._began, self._pictured = 0.0, 0.0
        self.codes: list[str] = []  # the texts of the page's code blocks
        self.session = ""  # its id, set once the page is open
        self.clock = ""  # the id of the fragment that reruns by itself (run_every)

    async def open(self) -> float:
        """Open the page; return the seconds until its script has finished."""
        took = await self._rerun(self._message())
        self._set(self._switch.key)
        return took

    async def first_picture(self) -> float:
        """Open the page; return the seconds until its first figure or table has arrived."""
        await self._rerun(self._message())
        if not self._pictured:
            raise RuntimeError(f"expected a picture on {self._switch.page or 'app.py'}")
        return self._pictured - self._began

    async def flip(self) -> float:
        """Set the switch to its other value; return the seconds from the click until the script has finished, or the
        fragment (st.fragment) that the switch is in."""
        self._turns += 1
        (message, state), value = self._set(self._switch.key), self._switch.values[self._turns % 2]
        if isinstance(value, bool):
            state.bool_value = value
        elif value not in self._options:
            raise RuntimeError(f"expected {value!r} to be one of {sorted(self._options)}")
        else:
            state.string_array_value.data.append(value)
        return await self._rerun(message)

    async def press(self, key: str) -> float:
        """Press a button; return the seconds until the script has finished."""
        message, state = self._set(key)
        state.trigger_value = True
        return await self._rerun(message)

    async def tick(self) -> float:
        """Rerun the fragment that reruns by itself, once; return the seconds."""
        message = self._message()
        message.rerun_script.fragment_id, message.rerun_script.is_auto_rerun = self.clock, True
        return await self._rerun(message)

    async def type(self, text: str) -> float:
        """Enter another text; return the seconds until the script has finished."""
        message, state = self._set("text")
        state.string_value = text
        return await self._rerun(message)

    def _set(self, key: str) -> tuple[BackMsg, WidgetState]:
        """Return the message that sets a widget, and the state in it that takes the value."""
        if key not in self._controls:
            raise RuntimeError(f"expected a control with the key {key!r} on {self._switch.page or 'app.py'}")
        message, (identity, part) = self._message(), self._controls[key]
        message.rerun_script.fragment_id = part
        return message, message.rerun_script.widget_states.widgets.add(id=identity)

    def _message(self) -> BackMsg:
        message = BackMsg()
        message.rerun_script.query_string, message.rerun_script.page_name = self._query, self._switch.page
        return message

    async def _rerun(self, message: BackMsg) -> float:
        self._began, self._pictured = time.perf_counter(), 0.0
        await self._socket.send(message.SerializeToString())
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = ForwardMsg.FromString(await self._socket.recv())
                kind = answer.WhichOneof("type")
                if kind == "script_finished":
                    return time.perf_counter() - self._began
                if kind == "new_session":
                    self.session = answer.new_session.initialize.session_id
                if kind == "page_info_changed":
                    self._query = answer.page_info_changed.query_string
                if kind == "auto_rerun":
                    self.clock = answer.auto_rerun.fragment_id
                if kind == "delta":
                    self._look_at(answer.delta)

    def _look_at(self, delta: Delta) -> None:
        element = delta.new_element
        kind = element.WhichOneof("type")
        if kind == "exception" or (kind == "alert" and element.alert.format == Alert.ERROR):
            raise RuntimeError(f"{self._switch.page or 'app.py'} shows an error: {element}")
        if not self._pictured and _is_picture(element):
            self._pictured = time.perf_counter()
        if kind == "button_group":
            self._options |= {option.content for option in element.button_group.options}
        if kind == "code":
            self.codes.append(element.code.code_text)
        if kind in CONTROLS:
            identity = getattr(element, kind).id  # $$ID-hash-key
            self._controls[identity.split("-", 2)[-1]] = identity, delta.fragment_id


def _is_picture(element: Element) -> bool:
    kind = element.WhichOneof("type")
    if kind == "bidi_component":
        return "listening_" not in element.bidi_component.id  # such a component draws nothing
    return kind in ("plotly_chart", "imgs") or (kind == "html" and "<table" in element.html.body)


@asynccontextmanager
async def visiting(address: str, switch: Switch, text: str, **link: str) -> AsyncIterator[Reader]:
    """Connect a user to the app at http://HOST:PORT; disconnect at the end. link: further query parameters."""
    host = address.removeprefix("http://")
    async with connect(
        f"ws://{host}/_stcore/stream", subprotocols=["streamlit"], origin=address, max_size=None, open_timeout=PATIENCE,
        ping_interval=None,  # browsers answer pings and send none
    ) as socket:  # fmt: skip
        yield Reader(socket, switch, text, **link)
