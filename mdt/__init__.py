"""Apache Hudi tables from Python, without a JAR, with indexes that pay."""
