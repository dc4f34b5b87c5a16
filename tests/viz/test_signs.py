"""What labels' signs stand for."""

from viz.html import signs


def test_signs_are_explained_where_they_stand_and_nowhere_else() -> None:
    assert signs(["a", "b"]) == ""
    assert signs(["·a", "⟨E6⟩"]) == (
        "· begins a token that has a space before its first letter; ⟨E6⟩ is a byte that is not a character by itself."
    )
    assert signs(["⟨id 30⟩"]) == "⟨id 9⟩ is an id that the tokenizer has no token for.", "no byte"
