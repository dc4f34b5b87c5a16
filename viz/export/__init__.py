"""What leaves the page: pictures for print, and the numbers as files."""
