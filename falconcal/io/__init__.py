"""Files of other people's making: what a folder holds, and the one way to read a picture."""
