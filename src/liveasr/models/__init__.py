"""The models that ship inside the package, as GGUF files, with their licences."""
