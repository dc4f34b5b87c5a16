"""The dates model, an encoder-decoder, and the dates it reads."""
