"""Common bugs of attention, and the laws that detect them."""
