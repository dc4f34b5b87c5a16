"""Images as tokens: reading images, and the part of an image that each of its tokens covers."""
