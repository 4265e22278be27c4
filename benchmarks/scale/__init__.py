"""How the store behaves when it is large: a made-up but realistic history, and every question that pages and commands ask of it."""
