"""What a head does: measures of its weights, how far it reaches, one row step by step."""
