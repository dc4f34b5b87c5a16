"""What the Generation page measures of a step."""
