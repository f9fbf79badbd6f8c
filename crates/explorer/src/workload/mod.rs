//! Programs of file operations whose crashes are explored.
