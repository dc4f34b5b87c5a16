"""Tests of messages with roles: parsed, rendered by the model's template within limits, read with special tokens."""

import json
from pathlib import Path

import pytest
import transformers as hf

import unmask
from model import catalog
from model.errors import CheckpointError
from model.huggingface import chat
from model.huggingface.checkpoint_files import CHAT_TEMPLATE
from serving import backends
from serving.job import Job
from serving.scheduler import LostTwice, TooSlow
from serving.settings import Settings
from tests.model.huggingface import families
from tests.tiny import save_tiny

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' and loop.first %}{{ raise_exception('the user begins') }}"
    "{% endif %}<s> {{ m.role }} {{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s> it{% endif %}"
)
MESSAGES = (("user", "the cat sat"), ("assistant", "on a </s> mat"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    families.save("llama", tmp_path)
    (tmp_path / CHAT_TEMPLATE).write_text(TEMPLATE)
    return tmp_path


def test_lines_that_begin_with_a_role_begin_a_message() -> None:
    text = "hello\nSystem: be short\nassistant:  yes \n and so on\n\nuser:\nwhy?: no role: at all"
    assert chat.messages_of(text) == (
        ("user", "hello"),
        ("system", "be short"),
        ("assistant", "yes \n and so on"),
        ("user", "why?: no role: at all"),
    )
    assert chat.messages_of("user: one\u2028two\x85\fthree") == (("user", "one\u2028two\x85\fthree"),)
    for wrong in ("", "  \n "):
        with pytest.raises(ValueError, match="expected 1 to 200 messages, got 0"):
            chat.messages_of(wrong)
    with pytest.raises(ValueError, match="expected a role out of system, user, assistant, got 'tool'"):
        chat.checked([("tool", "x")])


def test_the_template_is_rendered_and_its_special_tokens_are_tokens(folder: Path) -> None:
    text = chat.render(str(folder), Settings(), MESSAGES)
    assert text == "<s> user the cat sat</s><s> assistant on a </s> mat</s><s> it"
    model = catalog.load(str(folder), settings=Settings())
    assert model.chats
    batch, special = model.encode_rendered(text)
    ids = batch.ids[0].tolist()
    assert special >= {families.START, families.END}
    assert [ids.count(one) for one in (families.START, families.END)] == [3, 3]  # a typed </s> too, as in every chat
    assert ids[0] == families.START != ids[1]  # written by the template; no other is added
    typed = model.encode(["<s> the cat"]).ids[0].tolist()
    assert typed.count(families.START) <= 1  # typed in a plain text it is text; the model adds one
    assert "".join(batch.pieces[0]).count("<s>") == 3


def test_in_python_a_chat_is_a_run(folder: Path) -> None:
    model = unmask.load(str(folder))
    run = model.chat([{"role": role, "content": content} for role, content in MESSAGES], causal=False)
    assert run.trace.batch.texts == ("<s> user the cat sat</s><s> assistant on a </s> mat</s><s> it",)
    assert not run.masks.causal
    with pytest.raises(ValueError, match="does not take these messages \\(the user begins\\)"):
        model.chat([{"role": "assistant", "content": "hello"}])
    with pytest.raises(ValueError, match="only a decoder with a chat template"):
        unmask.load("story").chat([{"role": "user", "content": "hello"}])
    for wrong in ("hello", None, ["hello"], [{"role": "user"}], [{"role": "assistant", "content": None}]):
        with pytest.raises(ValueError, match="expected messages as dicts"):
            model.chat(wrong)


@pytest.mark.parametrize("kind", ["tiny", "checkpoint", "bert", "in memory"])
def test_who_takes_messages(kind: str, tmp_path: Path) -> None:
    """GPT-2 layouts and checkpoints with a template in the folder above accept messages; encoders do not."""
    turns, folder = [{"role": "user", "content": "the cat"}], tmp_path
    if kind == "tiny":
        save_tiny(folder)
    else:
        families.save("bert" if kind == "bert" else "llama", folder)
    (folder / CHAT_TEMPLATE).write_text(TEMPLATE)
    if kind == "checkpoint":
        folder = tmp_path / "checkpoint-7"
        folder.mkdir()
        for file in ("config.json", "model.safetensors"):
            (tmp_path / file).rename(folder / file)
    given = (str(folder),)
    if kind == "in memory":
        given = families.random_network("bert"), hf.AutoTokenizer.from_pretrained(folder)
    model = unmask.load(*given)
    if kind in ("tiny", "checkpoint"):
        assert model.chat(turns).trace.batch.texts == ("<s> user the cat</s><s> it",)
    else:
        with pytest.raises(ValueError, match="takes no messages: only a decoder with a chat template does"):
            model.chat(turns)


def test_a_chat_is_streamed_as_its_template_wrote_it(folder: Path) -> None:
    """The stream exceeds the context, and starts again at the chat's beginning."""
    model = unmask.load(str(folder))
    (label, turns), context = (model.model.label, [{"role": "user", "content": "the cat " * 30}]), model.model.context
    with pytest.warns(UserWarning, match="reads at most"):
        run = model.chat(turns)
    whole = [*run.trace.batch.ids[0].tolist(), *model.model.encode_rendered(run.cut)[0].ids[0].tolist()]
    assert [label(one) for one in whole[-4:]] == ["cat", "</s>", "<s>", "it"]
    ids = run.streamed(2 * len(whole), window=6, sinks=1, step=4).ids
    assert len(whole) > context
    assert list(ids) == 2 * whole


def test_a_chat_warns_as_a_run_does(folder: Path) -> None:
    turns = [{"role": "user", "content": "the cat " * 400}]
    with pytest.warns(UserWarning, match="reads at most .* tokens here: the last "):
        run = unmask.load(str(folder)).chat(turns)
    assert run.cut
    network = families.random_network("llama")
    model = unmask.load(network, hf.AutoTokenizer.from_pretrained(folder))
    network.model.layers[0].register_forward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="hooks or parameters have changed"):
        model.chat([{"role": "user", "content": "the cat"}])
    with pytest.warns(UserWarning, match="hooks or parameters have changed"):
        model.atlas(["the cat sat on a mat"])


@pytest.mark.parametrize("template", [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{% include '/etc/passwd' %}",
    "{{ ('x' * 1000) * 2000 }}",
    "{% for a in range(10) %}",
])  # fmt: skip
def test_a_hostile_template_is_refused_in_a_sentence(template: str, folder: Path) -> None:
    (folder / CHAT_TEMPLATE).write_text(template)
    with pytest.raises(CheckpointError, match="its chat template"):
        chat.render(str(folder), Settings(), MESSAGES)


def test_what_can_help_is_advised(folder: Path) -> None:
    (folder / CHAT_TEMPLATE).write_text("{% for a in range(10) %}")
    with pytest.raises(CheckpointError, match=r"cannot be used .* Turn Chat messages off"):
        chat.render(str(folder), Settings(), MESSAGES)
    (folder / CHAT_TEMPLATE).write_text("{{ messages[0].content + messages[2].content }}")
    with pytest.raises(CheckpointError, match=r"does not take these messages .* Change the roles or their order"):
        chat.render(str(folder), Settings(), MESSAGES)


def test_a_template_that_makes_no_text_is_said_to(folder: Path) -> None:
    (folder / CHAT_TEMPLATE).write_text("{# nothing #}")
    with pytest.raises(CheckpointError, match="its chat template gives no text"):
        chat.render(str(folder), Settings(), MESSAGES)


def test_a_relative_path_is_the_same_folder_in_the_process_that_reads_a_stranger_s_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's folder named "model" is not imported in place of this package's."""
    (folder / "model").mkdir()
    (folder / "model" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.chdir(folder)
    relative, absolute = (chat.render(name, Settings(), MESSAGES) for name in (".", str(folder)))
    assert backends.inspector(Settings()).ask(Job(chat.render, (".", Settings(), MESSAGES))) == relative == absolute


@pytest.mark.slow
def test_a_template_that_never_ends_ends_its_process_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inspector = backends.inspector(Settings())
    assert inspector._seconds == backends.INSPECTION_SECONDS
    job, plain = Job(chat.render, (str(folder), Settings(), MESSAGES)), (folder / CHAT_TEMPLATE).read_text()
    whole = inspector.ask(job)
    (folder / CHAT_TEMPLATE).write_text("{{ 'x' * 10**10 }}")
    with pytest.raises((LostTwice, ValueError, MemoryError)):
        inspector.ask(job)
    (folder / CHAT_TEMPLATE).write_text("{% for a in range(99999) %}" * 4 + "{% endfor %}" * 4)
    monkeypatch.setattr(inspector, "_seconds", 1.0)  # its process has started by now
    with pytest.raises(TooSlow):
        inspector.ask(job)
    monkeypatch.undo()
    (folder / CHAT_TEMPLATE).write_text(plain)
    assert inspector.ask(job) == whole


def test_without_a_template_there_is_no_chat(tmp_path: Path) -> None:
    families.save("llama", tmp_path)
    assert not catalog.load(str(tmp_path), settings=Settings()).chats
    with pytest.raises(CheckpointError, match="has no chat template"):
        chat.render(str(tmp_path), Settings(), MESSAGES)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
    assert catalog.load(str(tmp_path), settings=Settings()).chats
