"""Results of operations as data, each with its JSON document; ``report`` draws them."""
