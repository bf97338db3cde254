"""Users taken out of everything that holds them: hidden at once, purged from every file, certified."""
