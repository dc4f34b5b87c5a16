"""A test of the words that explain the signs in labels."""

from viz.html import signs


def test_signs_are_explained_where_they_stand_and_nowhere_else() -> None:
    assert signs(["a", "b"]) == ""
    assert signs(["·a", "⟨E7 8B⟩"]) == (
        "· begins a token that has a space before its first letter; "
        "⟨E7 8B⟩ stands for one or more bytes that form no character alone."
    )
    assert signs(["⟨id 30⟩"]) == "⟨id 30⟩ is an id that the tokenizer has no token for.", "no byte"
