"""The demo: real traffic through ``failsoft up`` while scenes break things on a timer."""
