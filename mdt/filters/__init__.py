"""What users write to choose and order rows, turned into predicates and sort keys."""
