"""Hudi on disk: one module per noun, bytes and Arrow in, bytes and Arrow out; nothing here touches
storage.
"""
