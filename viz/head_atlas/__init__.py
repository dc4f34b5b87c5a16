"""Pictures of the page Head atlas."""
