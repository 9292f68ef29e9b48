"""NVIDIA's compilers as plain functions from text to bytes. None of them needs a GPU or a driver."""
