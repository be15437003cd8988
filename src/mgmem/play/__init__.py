"""The page: a memory that runs in the browser, and the server that shows it."""
