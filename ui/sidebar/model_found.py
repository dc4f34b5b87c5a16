"""What was found in a model, in words."""

from i18n import N_, say, together
from model.base import Description, Model
from ui.explain import attention_name, title_of
from viz.mask_styles import mask_name

KINDS = {
    "decoder": N_("a decoder of {size} M parameters ({architecture})"),
    "encoder": N_("an encoder of {size} M parameters ({architecture})"),
    "encoder-decoder": N_("an encoder-decoder of {size} M parameters ({architecture})"),
}


def model_found(model: Model) -> str:
    """What was found in the model, in a few lines."""
    found = model.describe()
    millions = found.parameters / 1e6
    size = f"{millions:,.0f}" if millions >= 10 else f"{millions:.2g}"
    layers = _counts(found.layers) if len(found.layers) > 1 else f"{found.layers['self']}"
    facts = [
        say(KINDS[found.kind], size=size, architecture=found.architecture),
        say("{counts} layers", counts=layers),
        _heads(found),
        say("context {positions:,}", positions=found.context),
    ]
    if model.context < found.context:
        facts.append(say("{positions:,} used here", positions=model.context))
    if found.precision:
        facts.append(found.precision)
    masks = say(", ").join(_mask(found, name) for name in found.masks)
    listed = say(", ").join(facts)
    said = say("{model}: {facts}. Masks: {masks}.", model=title_of(model), facts=listed, masks=masks)
    return together([said, found.other_layers()]).rstrip()


def _mask(found: Description, name: str) -> str:
    """Its name, with its size where it has one."""
    if name not in found.sizes:
        return mask_name(name)
    count, layers = found.sizes[name]
    return say("{masks} ({count} positions, in {layers} layers)", masks=mask_name(name), count=count, layers=layers)


def _heads(found: Description) -> str:
    """One number where all attentions have as many, else one for each."""
    parts = found.heads_by_part or {"self": (found.heads, found.key_value_heads)}
    queries = {name: heads for name, (heads, _) in parts.items()}
    keys = {name: heads for name, (_, heads) in parts.items()}
    if keys != queries:
        return say("{counts} heads sharing {shared} key-value heads", counts=_total(queries), shared=_total(keys))
    return say("{counts} heads", counts=_total(queries))


def _total(counts: dict[str, int]) -> str:
    return _counts(counts) if len(set(counts.values())) > 1 else f"{next(iter(counts.values()))}"


def _counts(counts: dict[str, int]) -> str:
    return " + ".join(f"{count} {attention_name(name)}" for name, count in counts.items())
