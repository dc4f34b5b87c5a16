"""A reader without a browser: what a browser tells Streamlit's server, told over the same websocket.

One message opens a page or says what a control was set to; the answer is all that is to be drawn, and then that the
script has finished. Both ways protobuf: BackMsg there, ForwardMsg back.
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
    """A page, and the control on it that is flipped: its key, and its two values as the page shows them, the one it
    begins with first.

    link: where on the page it is, "step=2", for one that is not there at first."""

    page: str
    key: str
    values: tuple[bool, bool] | tuple[str, str] = (True, False)
    link: str = ""


class Reader:
    """One visit to a page. Raises RuntimeError where the page shows an error."""

    def __init__(self, socket: ClientConnection, switch: Switch, text: str, **link: str) -> None:
        self._socket, self._switch = socket, switch
        self._query = urlencode({"text": text} | dict(parse_qsl(switch.link)) | link)
        self._controls: dict[str, tuple[str, str]] = {}  # key -> id, and the part of the page that it is in
        self._turns, self._options = 0, set[str]()
        self._began, self._pictured = 0.0, 0.0
        self.codes: list[str] = []  # what the page shows to be copied
        self.session = ""  # its id, once the page is open
        self.clock = ""  # the part of the page that runs by its own clock

    async def open(self) -> float:
        """Seconds until the page's script has finished."""
        took = await self._rerun(self._message())
        self._set(self._switch.key)
        return took

    async def first_picture(self) -> float:
        """Opens the page: seconds until its first picture has come, or table."""
        await self._rerun(self._message())
        if not self._pictured:
            raise RuntimeError(f"expected a picture on {self._switch.page or 'app.py'}")
        return self._pictured - self._began

    async def flip(self) -> float:
        """The switch to its other value: seconds from the click until the script has finished, or the part of it that
        the switch is in (st.fragment)."""
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
        """A button: seconds until the script has finished."""
        message, state = self._set(key)
        state.trigger_value = True
        return await self._rerun(message)

    async def tick(self) -> float:
        """The part of the page that runs by its own clock, once."""
        message = self._message()
        message.rerun_script.fragment_id, message.rerun_script.is_auto_rerun = self.clock, True
        return await self._rerun(message)

    async def type(self, text: str) -> float:
        """Another text: seconds until the script has finished."""
        message, state = self._set("text")
        state.string_value = text
        return await self._rerun(message)

    def _set(self, key: str) -> tuple[BackMsg, WidgetState]:
        """What says that a control was set, and where its value goes."""
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
        return "listening_" not in element.bidi_component.id  # that part draws nothing
    return kind in ("plotly_chart", "imgs") or (kind == "html" and "<table" in element.html.body)


@asynccontextmanager
async def visiting(address: str, switch: Switch, text: str, **link: str) -> AsyncIterator[Reader]:
    """A reader of the app at http://HOST:PORT, who leaves at the end. link: what else the page's address asks for."""
    host = address.removeprefix("http://")
    async with connect(
        f"ws://{host}/_stcore/stream", subprotocols=["streamlit"], origin=address, max_size=None, open_timeout=PATIENCE,
        ping_interval=None,  # browsers answer pings and send none
    ) as socket:  # fmt: skip
        yield Reader(socket, switch, text, **link)
