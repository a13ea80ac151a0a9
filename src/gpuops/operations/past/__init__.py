"""Operations on what the store has: runs are saved, compared, explained, and used in place of asking nodes again."""
