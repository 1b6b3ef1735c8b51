"""What each page of the console shows, as plain data: the application makes HTML or JSON of it."""
