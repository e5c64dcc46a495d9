"""Services for tables that other Hudi writers write, too: adoption, and import of their commits."""
