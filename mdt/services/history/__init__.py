"""Services for past states: tags, savepoints, restore, and changes of the schema."""
