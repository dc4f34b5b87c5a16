"""The lessons in words and small pictures."""
