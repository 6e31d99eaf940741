"""The ways to guess ahead, one file each. None knows the controller or how its tokens are verified."""
