"""The dates model, an encoder-decoder, and the dates that it reads."""
