"""Services for past states: tags, savepoints, restore, and schema changes."""
