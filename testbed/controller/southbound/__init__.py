"""How the controller speaks to switches. The application knows only ``base.Southbound``."""
