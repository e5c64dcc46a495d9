"""The command line: ``mdt …``, one line of results for people, or JSON."""
