"""The agent process of one host: its traffic, the commands it takes, and the log it leaves."""
