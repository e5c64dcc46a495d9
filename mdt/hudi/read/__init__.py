"""Reading tables that Hudi wrote: their properties, their timeline and their newest file slices."""
