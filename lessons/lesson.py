"""A lesson as data: steps that each run a text on a model, ask a question, and say what to notice."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from i18n import N_, say
from lessons.answer import QuestionSubject
from lessons.formula import mathml
from lessons.questions import COMPARING, KINDS
from model.base import Model, TokenizedText
from model.catalog import induction_steps
from model.errors import last_of
from model.heads.vectors import (
    FOUR_TOKENS,
    FOUR_TOKENS_WIDTH,
    MAX_NUMBER,
    Added,
    FourTokens,
    Precision,
    RunScores,
    Then,
)
from model.images.scenes import scene_of
from model.masks import NATIVE, MaskSpec
from model.text import truncation_message

NAME = r"^[a-z0-9_]{1,60}$"
MAX_STEPS = 30
HEAD = re.compile(r"L(\d{1,3}) H(\d{1,3})")
Show = Literal[
    "head", "pair", "overview", "losses", "texts", "tokens", "embedding", "qkv", "output", "logits", "norms", "numbers",
    "training", "image",
]  # fmt: skip
OPENED = r"^((explore|mask_lab|layers|generation|serving|padding|why_causal)(\?.{1,500})?)?$"
SWITCHED = {"explore": NATIVE, "layers": NATIVE, "padding": ("causal",)}  # masks in a page's link; the Mask Lab's: all
NOT_OF = {  # pages that do not run models of a kind
    "encoder": ("generation", "serving"), "encoder-decoder": ("layers", "generation", "serving", "padding"),
}  # fmt: skip
OWN_MASKS = ("generation", "padding", "serving")  # pages whose links set masks by other parameters


def _masks(given: Any) -> Any:
    """Return a MaskSpec from the content of its JSON, or from that JSON as text. Raises ValueError."""
    if isinstance(given, dict):
        given = json.dumps(given)
    return MaskSpec.from_json(given) if isinstance(given, str) else given


def _head(given: Any) -> Any:
    found = HEAD.fullmatch(given) if isinstance(given, str) else None
    return (int(found[1]), int(found[2])) if found else given


def _ask(given: Any) -> Any:
    """Expand the short form `ask: loss` to `ask: {kind: loss}`."""
    return {"kind": given} if isinstance(given, str) else given


def _formula(given: str) -> str:
    if given:
        mathml(given)
    return given


Masks = Annotated[InstanceOf[MaskSpec], BeforeValidator(_masks)]
Text = Annotated[str, Field(min_length=1, max_length=2_000)]
ModelName = Annotated[str, Field(min_length=1, max_length=300)]
Image = Annotated[str, BeforeValidator(lambda given: scene_of(str(given)).text())]
A_TEXT = N_("a text of at most 2,000 characters")
A_MODEL = N_("a model's name")
A_SCENE = N_("a scene, as a link of the page Images has it: white_square-red-large-12-14")
SOME_MASKS = N_('masks, as a link of the page has them: {"causal": false}')


class LessonModel(BaseModel):
    """A part of a lesson's file. A field's description, translated, is the error message for a mistake in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    _lines: dict[str, int] = PrivateAttr(default_factory=dict)  # the line of each setting in the file; "": the step's


class Ask(LessonModel):
    """A question, whose right answer is computed from the step's run. See questions.KINDS."""

    kind: str = Field(description=N_("a kind of question"), json_schema_extra={"enum": [*KINDS]})
    among: tuple[Masks, ...] = Field(
        default=(), max_length=6, description=N_("for `picture`: two to six masks, as a link of the page has them")
    )

    key: int = Field(default=0, ge=0, le=10_000, description=N_("the position of a token, a whole number from 0"))
    pattern: Literal["previous", "first", "induction"] = Field(
        default="induction", description=N_("for `which_head`: previous, first or induction")
    )
    of: Literal["score", "weight", "output"] = Field(
        default="weight", description=N_("for `number`: score, weight or output")
    )
    within: float = Field(default=0.05, ge=0, le=1_000, description=N_("how far from the number an answer may be"))

    @property
    def token(self) -> str:
        """The token, in the row of four, whose number is asked for."""
        return FOUR_TOKENS[self.key] if self.kind == "number" else ""

    @model_validator(mode="after")
    def _is_a_kind(self) -> "Ask":
        if self.kind not in KINDS:
            values = {"kinds": ", ".join(KINDS), "kind": repr(self.kind)}
            raise ValueError(say("expected a kind of question, one of {kinds}, got {kind}", **values))
        if (self.kind == "picture") != (len(self.among) > 1):
            raise ValueError(say("`among` needs two to six masks and goes only with kind: picture"))
        if self.kind == "number" and self.key >= len(FOUR_TOKENS):
            raise ValueError(say("expected a key from 0 to {last}, got {key}", last=len(FOUR_TOKENS) - 1, key=self.key))
        return self


Number = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
Pair = Annotated[tuple[Number, ...], Field(min_length=FOUR_TOKENS_WIDTH, max_length=FOUR_TOKENS_WIDTH)]
Pairs = Annotated[tuple[Pair, ...], Field(min_length=len(FOUR_TOKENS), max_length=len(FOUR_TOKENS))]
SOME_PAIRS = N_("four pairs of numbers from −99 to 99: [[1, 0], [0, 2], …]")


class FourTokenRow(LessonModel):
    """A row of four tokens. See model/heads/vectors.py."""

    query: Pair = Field(description=N_("two numbers from −99 to 99: [1, 0]"))
    keys: Pairs = Field(description=SOME_PAIRS)
    values: Pairs = Field(description=SOME_PAIRS)
    blocked: tuple[Annotated[int, Field(ge=0, lt=len(FOUR_TOKENS))], ...] = Field(
        default=(), max_length=len(FOUR_TOKENS), description=N_("the blocked keys, whole numbers from 0 to 3")
    )
    add: Literal[Added, ""] = Field(default="-inf", description=N_('"-inf", "-1e4", "-10" or "" for nothing'))
    precision: Precision = Field(default="float32", description=N_("float32 or float16"))
    then: Then = Field(default="", description=N_('multiply, zero or "" for nothing'))
    sink: Number | None = Field(default=None, description=N_("a number from −99 to 99"))

    @property
    def plain(self) -> FourTokens:
        return FourTokens(**self.model_dump())


class ComparedStep(LessonModel):
    """The compared run of a step: the same step with these settings changed; the model's standard masks by default."""

    text: Text | None = Field(default=None, description=A_TEXT)
    model: ModelName | None = Field(default=None, description=A_MODEL)
    masks: Masks | None = Field(default=None, description=SOME_MASKS)
    image: Image | None = Field(default=None, description=A_SCENE)


class Step(LessonModel):
    """One screen of a lesson: a run, what is shown of it, and text."""

    title: str = Field(min_length=1, max_length=120, description=N_("a title of at most 120 characters after ##"))
    prose: str = Field(max_length=5_000, description=N_("at most 5,000 characters of Markdown"))
    text: Text = Field(description=N_("a text of at most 2,000 characters, here or at the top of the lesson"))
    model: ModelName = Field(default="story", description=A_MODEL)
    masks: Masks | None = Field(default=None, description=SOME_MASKS)
    image: Image | None = Field(default=None, description=A_SCENE)
    pad: Literal["left", "right"] = Field(default="left", description=N_("left or right"))
    row: int = Field(default=1, ge=1, le=16, description=N_("a line of the text, from 1 to 16"))
    attention: Literal["self", "encoder", "decoder", "cross"] = Field(
        default="self", description=N_("self; for an encoder-decoder: encoder, decoder or cross")
    )
    head: Annotated[tuple[int, int], BeforeValidator(_head)] = Field(
        default=(0, 0), description=N_("a head as the pages write it: L4 H0")
    )
    query: int | None = Field(
        default=None, ge=0, le=10_000, description=N_("the position of a token, a whole number from 0")
    )
    beside: ComparedStep = Field(
        default=ComparedStep(),
        description=N_("what the run is compared with: {text: …}, {model: …}, {masks: …} or {image: …}"),
    )
    show: Show = Field(
        default="head",
        description=N_(
            "one of head, pair, overview, losses, texts, tokens, embedding, qkv, output, logits, norms, numbers, "
            "training, image"
        ),
    )
    numbers: FourTokenRow | None = Field(default=None, description=N_("a row of four tokens: query, keys, values …"))
    formula: Annotated[str, Field(max_length=300), AfterValidator(_formula)] = Field(
        default="", description=N_("a formula of at most 300 characters in LaTeX")
    )
    page: str = Field(  # with the rest of its link, if any, after a question mark
        default="",
        pattern=OPENED,
        description=N_("a page to open: explore, mask_lab, layers, generation, serving, padding or why_causal"),
    )
    ask: Annotated[Ask | None, BeforeValidator(_ask)] = Field(default=None, description=N_("a kind of question"))
    notice: str = Field(default="", max_length=600, description=N_("what to notice, at most 600 characters"))

    @model_validator(mode="after")
    def _has_what_it_shows(self) -> "Step":
        if (self.show == "numbers") != (self.numbers is not None):
            raise ValueError(say("`numbers` goes with show: numbers, and only with it"))
        return self

    @field_validator("page")
    @classmethod
    def _shows_the_masks(cls, page: str, others: ValidationInfo) -> str:
        """Check that the page shows the step's masks, unless its link itself sets what it shows."""
        masks, plain, (name, says, _) = others.data.get("masks"), MaskSpec(), page.partition("?")
        if masks and name not in ("", "mask_lab") and not (says and name in OWN_MASKS):
            switched = {mask: getattr(plain, mask) for mask in SWITCHED.get(name, ())}
            if masks.replace(**switched) != plain:
                raise ValueError(say("expected mask_lab, the page that shows these masks, got {page}", page=page))
        return page

    def wrong(self, name: str, problem: object) -> ValueError:
        """Return the error, with its line in the file, for a setting that proves wrong when the step runs."""
        line = self._lines.get(name, self._lines.get("", 0))
        return ValueError(say("line {line}: {problem}", line=line, problem=problem))

    def check(self, model: Model, name: str, text: str, read: TokenizedText) -> None:
        """Check the step against a text as the model of this name reads it. Raises ValueError, with its line, if the
        text is not read completely, or has no such attention, row, head, query or image on that model, or if the step
        compares a run with itself."""
        batch, of_text = read.batch, "text" if text == self.text else "beside"
        if read.rows_left_out:
            most, got = len(read.rows), len(read.rows) + read.rows_left_out
            raise self.wrong(of_text, say("expected at most {most} lines, got {got}", most=most, got=got))
        if cut := max((batch.source or batch).cut, key=len, default=""):
            raise self.wrong(of_text, truncation_message(cut, model.context))
        page = self.page.partition("?")[0]
        twin = name.startswith("twin trained ") and page != "why_causal"  # not shown
        if name == self.model and page and (twin or self.image or page in NOT_OF.get(model.kind, ())):
            raise self.wrong("page", say("expected a page that runs {model}, got {page}", model=name, page=page))
        if self.show == "image" and self.image is None:
            raise self.wrong("show", say("expected `image`, which show: image needs"))
        if self.show == "training" and name not in induction_steps():
            raise self.wrong(
                "show", say("expected model: induction, which show: training needs, got {model}", model=name)
            )
        attentions = [*model.attentions]
        if self.ask and self.ask.kind == "next" and "encoder" in attentions:
            attentions.remove("encoder")  # its tokens are not those of the predicted text
        if self.attention not in attentions:
            words = N_("expected an attention of {model}, one of {attentions}, got {attention}")
            offered = ", ".join(attentions)
            raise self.wrong("attention", say(words, model=name, attentions=offered, attention=self.attention))
        rows, (layers, heads), (layer, head) = len(batch.pieces), model.describe().shape(self.attention), self.head
        if self.row > rows:
            raise self.wrong("row", say("expected a row from 1 to {last}, got {row}", last=rows, row=self.row))
        if layer >= layers:
            words = N_("expected a layer of {model} from 0 to {last}, got {layer}")
            last_layer = last_of(layers, model.describe().layer_numbers.get(self.attention, ()))
            raise self.wrong("head", say(words, model=name, last=last_layer, layer=layer))
        if head >= heads:
            words = N_("expected a head of {model} from 0 to {last}, got {head}")
            raise self.wrong("head", say(words, model=name, last=heads - 1, head=head))
        queries = batch.source if self.attention == "encoder" and batch.source else batch
        last = len(queries.pieces[self.row - 1]) - 1
        if self.query is not None and self.query > last:
            problem = say("expected a query from 0 to {last}, got {query}", last=last, query=self.query)
            raise self.wrong("query", problem)
        asks = self.ask is not None and self.ask.kind in COMPARING
        if (asks or self.show == "pair") and self._is_compared_with_itself(model.standard):
            problem = say("expected `masks` or `beside` that make the two runs differ, got a run compared with itself")
            raise self.wrong("ask" if asks else "show", problem)

    def _is_compared_with_itself(self, standard: MaskSpec) -> bool:
        """Whether `beside` changes nothing. standard: the masks of a run for which the step or `beside` sets none."""
        other, masks = self.beside, standard if self.masks is None else self.masks
        run = self.model, self.text.rstrip("\n"), self.image, masks
        return run == (
            other.model or self.model,
            (other.text or self.text).rstrip("\n"),
            other.image or self.image,
            standard if other.masks is None else other.masks,
        )

    def asked(self, series: tuple[tuple[int, RunScores], ...] = ()) -> QuestionSubject:
        """Return the subject of its question. series: the scores over the training that it shows, by training step."""
        assert self.ask is not None
        ask, numbers = self.ask, self.numbers.plain if self.numbers else None
        about = (ask.kind, self.row - 1, *self.head, self.query, ask.among, ask.key, ask.pattern, ask.within, ask.of)
        return QuestionSubject(*about, numbers, series, self.image)

    @property
    def compares(self) -> bool:
        """Whether its question or its picture needs the run that it is compared with."""
        return self.show in ("pair", "losses", "texts") or (self.ask is not None and self.ask.kind in COMPARING)


class FrontMatter(LessonModel):
    """A lesson's front matter. aim, needs: one line each. next: the name of the lesson that follows, or "".
    after: the names of those that it builds on.
    summary: Markdown at the beginning of its last screen.

    text, model, image: those of all steps that set none of their own.
    """

    title: str = Field(min_length=1, max_length=80, description=N_("a title of at most 80 characters"))
    aim: str = Field(
        min_length=1, max_length=200, description=N_("what is learned, in one line of at most 200 characters")
    )
    needs: str = Field(default="", max_length=200, description=N_("prerequisites, in one line"))
    minutes: int = Field(ge=1, le=240, description=N_("a whole number from 1 to 240"))
    after: tuple[Annotated[str, Field(pattern=NAME)], ...] = Field(
        default=(), max_length=10, description=N_("the names of the lessons that it needs: [causal_mask]")
    )
    next: str = Field(default="", pattern=NAME + "|^$", description=N_("the name of the next lesson: a-z, 0-9 and _"))
    summary: str = Field(default="", max_length=1_000, description=N_("at most 1,000 characters of Markdown"))
    text: Text | None = Field(default=None, description=A_TEXT)
    model: ModelName | None = Field(default=None, description=A_MODEL)
    image: Image | None = Field(default=None, description=A_SCENE)


class Lesson(FrontMatter):
    """A lesson with its steps in their order."""

    steps: tuple[Step, ...] = Field(min_length=1, max_length=MAX_STEPS)


def in_file(file: str, error: ValueError) -> str:
    """Return a lesson's errors, one per line, each after the file's name."""
    return "\n".join(say("{file}, {problem}", file=file, problem=problem) for problem in str(error).splitlines())
