"""What commands share: their options, asking nodes, the terminal, and how the program ends."""
