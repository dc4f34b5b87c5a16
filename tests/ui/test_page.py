"""TCP_NODELAY, so that small messages do not wait for one another, on sockets opened as Streamlit opens its own."""

import socket

from ui.page import tcp_nodelay


def test_sockets_that_are_there_and_those_accepted_later_send_at_once() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted_before,
    ):
        assert not sends_at_once(accepted_before)
        tcp_nodelay.cache_clear()
        tcp_nodelay()
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted_after:
            assert sends_at_once(accepted_before)
            assert sends_at_once(accepted_after)


def sends_at_once(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
