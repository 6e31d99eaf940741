"""What only a device can show: `make test-vulkan`, on Mesa's lavapipe or whatever llama.cpp finds."""
